"""Models of clicks in Keras, as the original had them. Each file has one."""
