#!/usr/bin/env python3
"""Writes what trainer/data/formats/python_test.cc reads into a folder: files of NumPy, csv and safetensors."""
import csv
import sys

import numpy
from safetensors.numpy import save_file

folder = sys.argv[1]
DTYPES = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def values(dtype):
    """4 samples of 3 x 2 values 0, 1, 2, ...; of bool, whether these are odd."""
    numbers = numpy.arange(24).reshape(4, 3, 2)
    return (numbers % 2 if dtype.endswith("b1") else numbers).astype(dtype)


for name in DTYPES:
    for order, letter in ("<", "little"), (">", "big"):
        numpy.save(f"{folder}/{name}_{letter}.npy", values(order + name))
numpy.save(f"{folder}/fortran.npy", numpy.asfortranarray(values("<f4")))
numpy.save(f"{folder}/scalars.npy", numpy.asfortranarray(numpy.arange(4)))
numpy.savez(f"{folder}/stored.npz", **{name: values(name) for name in DTYPES})
numpy.savez_compressed(f"{folder}/deflated.npz", **{name: values(name) for name in DTYPES})
save_file({name: values(name) for name in DTYPES}, f"{folder}/data.safetensors")

TEXTS = ["plain", 'with "quotes"', "a, comma", "two\nlines", "two\r\nlines", "", " blanks ", "\u00e4\u4e2d\U0001f600"]
with open(f"{folder}/data.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["number", "fraction", "text"])
    for i in range(100):
        writer.writerow([i - 50, i / 4, TEXTS[i % len(TEXTS)]])
with open(f"{folder}/one.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL).writerows([[text] for text in TEXTS])
