{{- define "downpour.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "downpour.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "downpour.name" .) .Release.Name -}}
{{- printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s-operator" .Release.Name (include "downpour.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "downpour.selectorLabels" -}}
app.kubernetes.io/name: {{ include "downpour.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "downpour.labels" -}}
{{ include "downpour.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "downpour.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "downpour.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The name of an image: dict "root" $ "image" .Values.images.operator */}}
{{- define "downpour.image" -}}
{{- $images := .root.Values.images -}}
{{- $name := .image.repository -}}
{{- if $images.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $images.registry) .image.repository -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (coalesce .image.tag $images.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Where jobs run, as far as this release knows. */}}
{{- define "downpour.jobNamespace" -}}
{{- default .Release.Namespace .Values.watchNamespace -}}
{{- end -}}

{{/* What the operator may do in the namespaces of jobs. No secrets, no exec, no wildcard. */}}
{{- define "downpour.jobRules" -}}
# Reads jobs; deletes one when spec.ttlSecondsAfterFinished is over. Never changes a spec.
- apiGroups: [training.downpour.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [training.downpour.dev]
  resources: [trainingjobs/status]
  verbs: [update]
# For ownerReferences with blockOwnerDeletion, where the cluster enforces them.
- apiGroups: [training.downpour.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
# One headless Service a namespace, which is deleted after its last job. (That only these are made cannot be said.)
- apiGroups: [""]
  resources: [services]
  resourceNames: [downpour-jobs]
  verbs: [get, list, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [create]
# One EndpointSlice and one PodDisruptionBudget a job; the garbage collector deletes them with the job. OpenShift asks for
# `restricted` of whoever names addresses of pods.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices, endpointslices/restricted]
  verbs: [get, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- end -}}
