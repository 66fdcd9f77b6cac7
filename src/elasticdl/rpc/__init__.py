"""How programs talk: gRPC behind plain objects. The only package that imports grpc."""
