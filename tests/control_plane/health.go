package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/health" // the client watches the status of its server
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// watched makes a client call only servers whose status is SERVING. The balancer that it has by default ignores the status.
var watched = grpc.WithDefaultServiceConfig(
	`{ "loadBalancingConfig": [{ "round_robin": {} }], "healthCheckConfig": { "serviceName": "ratelimit" } }`)

// watch checks the first status of a stream.
func watch(connection *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := health.NewHealthClient(connection).Watch(ctx, &health.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		return err
	}
	response, err := stream.Recv()
	if err != nil {
		return err
	}
	if response.GetStatus() != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("the status is %v", response.GetStatus())
	}
	return nil
}
