from tests import native

native.require("elasticdl.boosting._native")
