package tidegate_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoyproxy/ratelimit/src/tidegate"
	"github.com/envoyproxy/ratelimit/test/common"
)

const (
	clients  = 64
	interval = time.Second
	// window is shorter than the interval by the resolution of the clock, at both ends.
	window = interval - 2*time.Millisecond
	// slow is the longest call that Envoy should see: its timeout is 20 ms by default.
	slow = 25 * time.Millisecond
)

// limit is a limit of all clients, with a failure policy, and what the local shares of all instances grant in an interval.
type limit struct {
	name   string
	policy string
	rate   int
	share  int
}

var limits = []limit{{"strict", "deny", 100, 0}, {"shared", "local", 100, 100}}

// answered is a call: it was decided between its begin and its end. A decision of Redis has a field for clients, and that of the
// local share of an instance has none.
type answered struct {
	begin, end time.Time
	limit      int
	granted    bool
	local      bool
}

// TestOutage runs 64 clients of two instances. Redis is killed after a third of the time, and restarted after half of it.
func TestOutage(t *testing.T) {
	total, pause := setting("TIDEGATE_OUTAGE_SECONDS", 12), setting("TIDEGATE_OUTAGE_PAUSE_MS", 200)
	length := time.Duration(total) * time.Second
	redis := startRedis(t, "")
	services := []*tidegate.Service{instance(t, redis), instance(t, redis)}
	calls := make([][]answered, clients)
	var running sync.WaitGroup
	begin := time.Now()
	for client := range clients {
		running.Go(func() {
			calls[client] = load(t, services[client%2], client, begin.Add(length), time.Duration(pause)*time.Millisecond)
		})
	}
	time.Sleep(time.Until(begin.Add(length / 3)))
	killed := time.Now()
	redis.kill()
	time.Sleep(time.Until(begin.Add(length / 2)))
	redis.start(t)
	restarted := time.Now()
	running.Wait()
	all := slices.Concat(calls...)
	report(all, killed, restarted)
	for number, one := range limits {
		byRedis, local := fullest(grants(all, number, false)), fullest(grants(all, number, true))
		fmt.Printf("%s: fullest interval %d of %d by Redis, and %d by the local shares\n", one.name, byRedis, one.rate, local)
		require.Positive(t, byRedis, one.name)
		require.LessOrEqual(t, byRedis, one.rate, one.name)
		require.LessOrEqual(t, local, one.share, one.name)
	}
}

func setting(name string, otherwise int) int {
	if number, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return number
	}
	return otherwise
}

func instance(t *testing.T, redis *redis) *tidegate.Service {
	return started(t, tidegate.Options{Store: redis.store(time.Duration(setting("TIDEGATE_OUTAGE_TIMEOUT_MS", 1000)) * time.Millisecond), Algorithm: "token_bucket", Switches: domains()})
}

// domains returns the lines of the rule file with the limits.
func domains() []string {
	lines := []string{"domains:", "  - name: outage", "    limits:"}
	for _, one := range limits {
		line := "      - { name: %s, match: { %s: '*' }, mode: PER_CLIENT, rate: %d, interval: %v, on_store_failure: %s }"
		lines = append(lines, fmt.Sprintf(line, one.name, one.name, one.rate, interval, one.policy))
	}
	return lines
}

// load makes calls over a connection of its own. No call may fail.
func load(t *testing.T, service *tidegate.Service, client int, end time.Time, pause time.Duration) (calls []answered) {
	conn, err := grpc.NewClient(service.Conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	own := &tidegate.Service{Conn: conn}
	number := client / 2 % len(limits)
	request := common.NewRateLimitRequest("outage", [][][2]string{descriptor(limits[number].name + "=all")}, 1)
	// The first call also opens the connection.
	if _, err := own.Ask(request); err != nil {
		t.Error(err)
	}
	for time.Now().Before(end) {
		call := answered{begin: time.Now(), limit: number}
		response, err := own.Ask(request)
		call.end = time.Now()
		if err != nil {
			t.Error(err)
			return calls
		}
		call.granted = response.OverallCode == ok
		call.local = !slices.ContainsFunc(response.ResponseHeadersToAdd, func(field *core.HeaderValue) bool {
			return field.Key == "ratelimit"
		})
		calls = append(calls, call)
		time.Sleep(pause)
	}
	return calls
}

func grants(all []answered, limit int, local bool) (granted []answered) {
	for _, call := range all {
		if call.limit == limit && call.granted && call.local == local {
			granted = append(granted, call)
		}
	}
	slices.SortFunc(granted, func(a, b answered) int { return a.begin.Compare(b.begin) })
	return granted
}

// fullest returns the most grants in an interval. A grant counts if its call began and ended in the interval.
func fullest(granted []answered) (most int) {
	for first, start := range granted {
		count := 0
		for _, call := range granted[first:] {
			if call.begin.Sub(start.begin) >= window {
				break
			}
			if call.end.Sub(start.begin) < window {
				count++
			}
		}
		most = max(most, count)
	}
	return most
}

// report writes the times of all calls. They say something only about a machine without other load.
func report(all []answered, killed time.Time, restarted time.Time) {
	var times, ofOutage []time.Duration
	late := 0
	for _, call := range all {
		took := call.end.Sub(call.begin)
		times = append(times, took)
		if call.end.After(killed) && call.begin.Before(restarted.Add(time.Second)) {
			ofOutage = append(ofOutage, took)
		}
		if took > slow {
			late++
		}
	}
	slices.Sort(times)
	slices.Sort(ofOutage)
	p99 := func(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100].Round(time.Microsecond) }
	fmt.Printf("%d calls: p99 %v, slowest %v, %d above %v; around the outage: %d calls, p99 %v, slowest %v\n",
		len(times), p99(times), times[len(times)-1], late, slow, len(ofOutage), p99(ofOutage), ofOutage[len(ofOutage)-1])
}
