"""MNIST as a TFRecord file: python make_records.py IMAGES TARGET [RECORDS].

IMAGES is a file of MNIST's own, plain, .gz or .xz, with its labels file beside it.
"""

import sys

import tensorflow as tf

from elasticdl.zoo.mnist.idx import IdxImages


def main(images: str, target: str, records: str = "0") -> None:
    digits = IdxImages.open(images)
    with tf.io.TFRecordWriter(target) as writer:
        for number in range(int(records) or len(digits)):
            image, digit = digits[number]
            feature = {
                "image": tf.train.Feature(float_list=tf.train.FloatList(value=image.reshape(-1).astype(float))),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[digit])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


if __name__ == "__main__":
    main(*sys.argv[1:])
