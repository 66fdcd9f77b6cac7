from tests import native

native.require("elasticdl.features.sql._counter")
