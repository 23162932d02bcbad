package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
)

const (
	node     = "envoy-ratelimit"
	patience = 40 * time.Second
)

// plane is a control plane, which counts its versions from 1.
type plane struct {
	cache    cache.SnapshotCache
	server   *grpc.Server
	requests chan *discovery.DiscoveryRequest
	version  int
}

// startPlane serves a first configuration at an address.
func startPlane(address string, first *rls.RateLimitConfig, options ...grpc.ServerOption) (*plane, string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	p := &plane{
		cache:    cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		server:   grpc.NewServer(options...),
		requests: make(chan *discovery.DiscoveryRequest, 1000),
	}
	if err := p.push(first); err != nil {
		return nil, "", err
	}
	seen := server.CallbackFuncs{StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
		p.requests <- request
		return nil
	}}
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, server.NewServer(context.Background(), p.cache, seen))
	go func() { _ = p.server.Serve(listener) }()
	return p, listener.Addr().String(), nil
}

// push sends a configuration with the next version.
func (p *plane) push(configs ...*rls.RateLimitConfig) error {
	p.version++
	resources := make([]types.Resource, 0, len(configs))
	for _, config := range configs {
		resources = append(resources, config)
	}
	all := map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources}
	snapshot, err := cache.NewSnapshot(fmt.Sprint(p.version), all)
	if err != nil {
		return err
	}
	return p.cache.SetSnapshot(context.Background(), node, snapshot)
}

// accepted waits until the service has accepted the last version. It may reject an earlier one until then.
func (p *plane) accepted() error {
	return p.wait(func(request *discovery.DiscoveryRequest) bool {
		return request.GetErrorDetail() == nil && request.GetVersionInfo() == fmt.Sprint(p.version)
	})
}

// rejected waits until the service has rejected the last version, and returns the error that it sent.
func (p *plane) rejected() (string, error) {
	text := ""
	err := p.wait(func(request *discovery.DiscoveryRequest) bool {
		text = request.GetErrorDetail().GetMessage()
		return request.GetErrorDetail() != nil && request.GetVersionInfo() != fmt.Sprint(p.version)
	})
	return text, err
}

func (p *plane) wait(found func(*discovery.DiscoveryRequest) bool) error {
	timeout := time.After(patience)
	for {
		select {
		case request := <-p.requests:
			if id := request.GetNode().GetId(); id != node {
				return fmt.Errorf("the node is %q", id)
			}
			if found(request) {
				return nil
			}
		case <-timeout:
			return errors.New("the service has not answered")
		}
	}
}
