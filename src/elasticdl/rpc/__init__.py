"""Calls between programs: gRPC behind plain objects. No other package imports grpc."""
