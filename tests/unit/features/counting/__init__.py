from tests import native

native.require("elasticdl.features._native")
