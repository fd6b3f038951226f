"""Drivers that start and stop a Kubernetes cluster for the end-to-end tests."""
