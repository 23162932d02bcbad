// Command control_plane tests the rate limit service of a program with a control plane: no call fails while the configuration
// changes, is broken and is repaired, and while the control plane restarts. The command in place of envoyproxy/ratelimit takes its
// configuration from a control plane with TLS.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	descriptors "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	rounds  = 30
	clients = 8
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: control_plane PROGRAM")
		os.Exit(2)
	}
	for _, test := range []func(string) error{run, testCommand} {
		if err := test(os.Args[1]); err != nil {
			fmt.Println("FAILED", err)
			os.Exit(1)
		}
	}
}

func run(program string) error {
	folder, err := os.MkdirTemp("", "tidegate-control-plane-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	p, address, err := startPlane("127.0.0.1:0", limited("edge", rls.RateLimitUnit_HOUR, rate(0)))
	if err != nil {
		return err
	}
	defer func() { p.server.Stop() }()
	socket := filepath.Join(folder, "grpc.sock")
	gateway, err := startGateway(program, folder, socket, address)
	if err != nil {
		return err
	}
	defer func() { _ = gateway.Process.Kill(); _ = gateway.Wait() }()
	if err := p.accepted(); err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), watched)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := watch(connection); err != nil {
		return fmt.Errorf("health: %w", err)
	}
	if err := describe(connection); err != nil {
		return fmt.Errorf("reflection: %w", err)
	}
	load := startLoad(ratelimit.NewRateLimitServiceClient(connection))
	changes := func() error {
		for round := 1; round <= rounds; round++ {
			if err := change(&p, address, round); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	}
	changed := changes()
	calls, failed := load.stop()
	if changed != nil {
		return changed
	}
	if failed != nil {
		return failed
	}
	fmt.Printf("%d rounds, %d calls, none failed\n", rounds, calls)
	return nil
}

// change changes the configuration once.
func change(p **plane, address string, round int) error {
	next := limited("edge", rls.RateLimitUnit_HOUR, rate(round))
	switch round % 5 {
	case 2: // broken, and repaired
		broken := limited("edge", rls.RateLimitUnit_UNKNOWN, rate(round))
		if err := (*p).push(broken, limited("", rls.RateLimitUnit_HOUR, 1)); err != nil {
			return err
		}
		text, err := (*p).rejected()
		if err != nil {
			return err
		}
		for _, part := range []string{"`UNKNOWN` is not a unit", "`domain` is missing"} {
			if !strings.Contains(text, part) {
				return fmt.Errorf("the error lacks %q: %s", part, text)
			}
		}
	case 4: // restarted, with versions from 1
		(*p).server.Stop()
		restarted, _, err := startPlane(address, next)
		if err != nil {
			return err
		}
		*p = restarted
		return (*p).accepted()
	}
	if err := (*p).push(next, limited(fmt.Sprint("domain-", round), rls.RateLimitUnit_DAY, 1)); err != nil {
		return err
	}
	return (*p).accepted()
}

// rate is the rate of a round, which no load reaches.
func rate(round int) uint32 { return uint32(1_000_000_000 + round) }

func limited(domain string, unit rls.RateLimitUnit, rate uint32) *rls.RateLimitConfig {
	policy := &rls.RateLimitPolicy{Unit: unit, RequestsPerUnit: rate}
	descriptor := &rls.RateLimitDescriptor{Key: "user", RateLimit: policy}
	// A snapshot has one resource of each name.
	return &rls.RateLimitConfig{Name: "resource-" + domain, Domain: domain, Descriptors: []*rls.RateLimitDescriptor{descriptor}}
}

func startGateway(program, folder, socket, address string) (*exec.Cmd, error) {
	rules := fmt.Sprintf("admin: off\nservice:\n  grpc: unix:%s\n  descriptors: { xds: 'http://%s', node: %s }\n", socket, address, node)
	file := filepath.Join(folder, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		return nil, err
	}
	gateway := exec.Command(program, "run", "-c", file, "--workers", "2")
	gateway.Stderr = os.Stderr
	gateway.Env = append(os.Environ(), "TIDEGATE_LOG=warn")
	return gateway, gateway.Start()
}

// load calls the service until it is stopped.
type load struct {
	ended  atomic.Bool
	calls  atomic.Int64
	first  sync.Once
	failed error
	all    sync.WaitGroup
}

func startLoad(service ratelimit.RateLimitServiceClient) *load {
	l := &load{}
	for number := range clients {
		l.all.Add(1)
		go func() {
			defer l.all.Done()
			for !l.ended.Load() {
				if err := call(service, fmt.Sprint("client-", number)); err != nil {
					l.first.Do(func() { l.failed = err })
					return
				}
				l.calls.Add(1)
			}
		}()
	}
	return l
}

func (l *load) stop() (int64, error) {
	l.ended.Store(true)
	l.all.Wait()
	return l.calls.Load(), l.failed
}

// call makes a call. An answer without a limit would mean that the domain was unknown for a moment.
func call(service ratelimit.RateLimitServiceClient, user string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	entry := &descriptors.RateLimitDescriptor_Entry{Key: "user", Value: user}
	descriptor := &descriptors.RateLimitDescriptor{Entries: []*descriptors.RateLimitDescriptor_Entry{entry}}
	request := &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: []*descriptors.RateLimitDescriptor{descriptor}}
	response, err := service.ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if statuses := response.GetStatuses(); len(statuses) != 1 || statuses[0].GetCurrentLimit().GetRequestsPerUnit() < rate(0) {
		return errors.New("a call had no limit: " + response.String())
	}
	return nil
}
