"""Writes the 1,797 handwritten digits inside the scikit-learn package as MNIST IDX files.

usage: export_digits.py FOLDER

FOLDER gets {train,test}-{images-idx3,labels-idx1}-ubyte and SOURCE.txt. Images are 8 x 8, their
grey levels 0..16 scaled to 0..255. Every fifth digit (index 4, 9, 14, ...) is a test image: 359
of them, the other 1,438 are for training.
"""

import gzip
import importlib.util
import pathlib
import struct
import sys

SOURCE = """\
Optical Recognition of Handwritten Digits (test set, 1,797 images of 8 x 8)
E. Alpaydin and C. Kaynak, 1998. UCI Machine Learning Repository, doi:10.24432/C50P49
Licence: Creative Commons Attribution 4.0 International (CC BY 4.0)
Taken from scikit-learn (BSD 3-Clause), sklearn/datasets/data/digits.csv.gz, by export_digits.py:
grey levels 0..16 scaled to 0..255, MNIST IDX form, every fifth digit (index 4, 9, ...) for test.
"""


def read_digits():
    """Returns rows of 64 grey levels and a label, without importing all of scikit-learn."""
    package = pathlib.Path(importlib.util.find_spec("sklearn").origin).parent
    with gzip.open(package / "datasets/data/digits.csv.gz", "rt") as file:
        return [[int(float(cell)) for cell in line.split(",")] for line in file]


def write_idx(folder, name, rows):
    images = b"".join(bytes(level * 255 // 16 for level in row[:64]) for row in rows)
    labels = bytes(row[64] for row in rows)
    image_header = struct.pack(">IIII", 0x803, len(rows), 8, 8)
    label_header = struct.pack(">II", 0x801, len(rows))
    (folder / f"{name}-images-idx3-ubyte").write_bytes(image_header + images)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(label_header + labels)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rows = read_digits()
    write_idx(folder, "test", rows[4::5])
    write_idx(folder, "train", [row for index, row in enumerate(rows) if index % 5 != 4])
    # Last: it tells that the rest is complete.
    (folder / "SOURCE.txt").write_text(SOURCE)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
