"""Digits of 28x28 pixels with the functional API of Keras: the model of the first tutorial.

Records are TFRecord Examples with the features `image` (784 floats, 0 to 255) and `label` (one integer);
`make_records.py` beside this file writes them from the MNIST files.
"""

import tensorflow as tf
from tensorflow.keras import layers

SIDE = 28
CLASSES = 10


def custom_model():
    image = tf.keras.Input(shape=(SIDE, SIDE), name="image")
    hidden = layers.Reshape((SIDE, SIDE, 1))(image)
    hidden = layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(hidden)
    hidden = layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(hidden)
    hidden = layers.BatchNormalization()(hidden)
    hidden = layers.MaxPooling2D(pool_size=(2, 2))(hidden)
    hidden = layers.Dropout(0.25)(hidden)
    hidden = layers.Flatten()(hidden)
    return tf.keras.Model(inputs=image, outputs=layers.Dense(CLASSES)(hidden), name="mnist_model")


def loss(labels, predictions):
    per_record = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(labels, [-1]), logits=predictions)
    return tf.reduce_mean(per_record)


def optimizer(lr=0.1):
    return tf.keras.optimizers.SGD(lr)


def dataset_fn(dataset, mode, metadata):
    is_prediction = mode == "prediction"

    def parse(record):
        wanted = {"image": tf.io.FixedLenFeature([SIDE, SIDE], tf.float32)}
        if not is_prediction:
            wanted["label"] = tf.io.FixedLenFeature([1], tf.int64)
        example = tf.io.parse_single_example(record, wanted)
        features = {"image": example["image"] / 255.0}
        return features if is_prediction else (features, tf.cast(example["label"], tf.int32))

    dataset = dataset.map(parse)
    return dataset.shuffle(buffer_size=1024) if mode == "training" else dataset


def eval_metrics_fn():
    def accuracy(labels, predictions):
        return tf.equal(tf.argmax(predictions, 1, output_type=tf.int32), tf.reshape(labels, [-1]))

    return {"accuracy": accuracy}
