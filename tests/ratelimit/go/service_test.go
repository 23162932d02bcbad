package tidegate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestService has the cases of test/service that are no calls.
func TestService(t *testing.T) {
	t.Run("TestServiceHealthStatus", func(t *testing.T) {
		service := memory(t, limiterFile)
		request := &healthpb.HealthCheckRequest{Service: "ratelimit"}
		response, err := healthpb.NewHealthClient(service.Conn).Check(context.Background(), request)
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, response.Status)
	})
}
