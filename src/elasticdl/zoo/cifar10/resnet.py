"""ResNet-20 in Keras for pictures of 32 x 32 pixels (He et al., Deep Residual Learning, CVPR 2016, section 4.2).

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=cifar10.resnet.forward --data_format=python \
    --training_data=data/data_batch_1.bin --validation_data=data/test_batch.bin --minibatch_size=128

The data are CIFAR-10's binary files (--training_data=cifar-10-batches-bin takes all of a directory), or synthetic
images in the same form: python -m elasticdl.zoo.cifar10.data data
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from elasticdl.data.dataset import Metadata
from elasticdl.model.mode import Mode
from elasticdl.zoo.cifar10.data import CLASSES, SIDE, CifarImages

DECAY = 1e-4
DROPS = (32_000, 48_000)  # after these steps the learning rate is divided by ten


def forward(blocks: int = 3, width: int = 16, augmented: bool = True) -> Any:
    """Builds 6 · `blocks` + 2 layers. With `augmented`, training moves images by up to 4 pixels and mirrors them."""
    picture = keras.Input((SIDE, SIDE, 3), name="picture")
    x = picture
    if augmented:
        x = keras.layers.RandomFlip("horizontal")(x)
        x = keras.layers.RandomCrop(SIDE, SIDE)(keras.layers.ZeroPadding2D(4)(x))
    x = _convolution(x, width)
    for stage in range(3):
        for number in range(blocks):
            x = _block(x, width * 2**stage, stride=2 if stage and not number else 1)
    x = keras.layers.GlobalAveragePooling2D()(x)
    scores = keras.layers.Dense(CLASSES, kernel_regularizer=keras.regularizers.L2(DECAY))(x)
    return keras.Model(picture, scores)


def _block(x: Any, width: int, stride: int) -> Any:
    """Adds two layers to their input, which is subsampled and padded with zero channels if `stride` is above 1."""
    y = _convolution(_convolution(x, width, stride), width, is_last=True)
    if stride > 1:
        missing = width - x.shape[-1]
        x = x[:, ::stride, ::stride]
        x = keras.ops.pad(x, [[0, 0], [0, 0], [0, 0], [missing // 2, missing - missing // 2]])
    return keras.layers.ReLU()(keras.layers.Add()([x, y]))


def _convolution(x: Any, width: int, stride: int = 1, *, is_last: bool = False) -> Any:
    convolution = keras.layers.Conv2D(
        width,
        3,
        stride,
        "same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=keras.regularizers.L2(DECAY),
    )
    x = keras.layers.BatchNormalization(momentum=0.9)(convolution(x))
    return x if is_last else keras.layers.ReLU()(x)


def loss(labels: Any, predictions: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer(lr: float = 0.1) -> Any:
    rates = keras.optimizers.schedules.PiecewiseConstantDecay(list(DROPS), [lr, lr / 10, lr / 100])
    return keras.optimizers.SGD(rates, momentum=0.9)


def custom_data_reader(data_path: str) -> CifarImages:
    return CifarImages.open(data_path)


def dataset_fn(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
    def example(pixels: Any, label: Any) -> Any:
        picture = tf.cast(pixels, tf.float32) / 128 - 1
        return picture if mode is Mode.PREDICTION else (picture, label)

    return dataset.map(example)


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
