from tests import native

native.require()
