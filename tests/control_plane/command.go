package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	descriptors "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// testCommand runs the program with the variables of envoyproxy/ratelimit. It takes its configuration from a control plane that
// requires a client certificate. Two resources have the same domain.
func testCommand(program string) error {
	folder, err := os.MkdirTemp("", "tidegate-control-plane-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	authority, err := newAuthority(folder)
	if err != nil {
		return err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{authority.server}, ClientCAs: authority.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	hourly := limited("edge", rls.RateLimitUnit_HOUR, rate(1))
	p, address, err := startPlane("127.0.0.1:0", hourly, grpc.Creds(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer p.server.Stop()
	socket := filepath.Join(folder, "grpc.sock")
	service := exec.Command(program, "ratelimit", "--workers", "2")
	service.Stderr = os.Stderr
	service.Env = append(os.Environ(), "LOG_LEVEL=error", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address,
		"CONFIG_GRPC_XDS_NODE_ID="+node, "CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+authority.ca, "CONFIG_GRPC_XDS_SERVER_TLS_SAN="+serverName,
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+authority.clientCert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+authority.clientKey,
		"MERGE_DOMAIN_CONFIG=true", "GRPC_UDS="+socket, "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		// Without Redis, the share of the only instance decides.
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:1")
	if err := service.Start(); err != nil {
		return err
	}
	defer func() { _ = service.Process.Kill(); _ = service.Wait() }()
	if err := p.accepted(); err != nil {
		return err
	}
	tenants := limited("edge", rls.RateLimitUnit_DAY, rate(2))
	tenants.Name, tenants.Descriptors[0].Key = "tenants", "tenant"
	if err := p.push(hourly, tenants); err != nil {
		return err
	}
	if err := p.accepted(); err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := callBoth(ratelimit.NewRateLimitServiceClient(connection)); err != nil {
		return err
	}
	fmt.Println("the command has the configuration")
	return nil
}

// callBoth makes a call to which the limits of both resources apply.
func callBoth(service ratelimit.RateLimitServiceClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request := &ratelimit.RateLimitRequest{Domain: "edge"}
	for _, key := range []string{"user", "tenant"} {
		entry := &descriptors.RateLimitDescriptor_Entry{Key: key, Value: "a"}
		descriptor := &descriptors.RateLimitDescriptor{Entries: []*descriptors.RateLimitDescriptor_Entry{entry}}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	response, err := service.ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for i, status := range response.GetStatuses() {
		if found := status.GetCurrentLimit().GetRequestsPerUnit(); found != rate(i+1) {
			return errors.New(fmt.Sprint("a descriptor has another limit: ", response))
		}
	}
	return nil
}
