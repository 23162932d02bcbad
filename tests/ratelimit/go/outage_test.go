package tidegate_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoyproxy/ratelimit/src/tidegate"
	"github.com/envoyproxy/ratelimit/test/common"
)

const (
	clients  = 64
	interval = time.Second
	// slow is the longest call that Envoy should see: its timeout is 20 ms by default.
	slow = 25 * time.Millisecond
)

// limit is a limit of all clients, with a failure policy.
type limit struct {
	name   string
	policy string
	rate   int
}

var limits = []limit{{"strict", "deny", 100}, {"shared", "local", 100}}

// answered is a call: it was decided between its begin and its end.
type answered struct {
	begin, end time.Time
	limit      int
	granted    bool
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
		check(t, grants(all, number), one, killed, restarted)
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
		line := "      - { name: %s, match: { generic_key: %s }, mode: OVERALL, rate: %d, interval: %v, on_store_failure: %s }"
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
	request := common.NewRateLimitRequest("outage", [][][2]string{descriptor("generic_key=" + limits[number].name)}, 1)
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
		calls = append(calls, call)
		time.Sleep(pause)
	}
	return calls
}

func grants(all []answered, limit int) (granted []answered) {
	for _, call := range all {
		if call.limit == limit && call.granted {
			granted = append(granted, call)
		}
	}
	slices.SortFunc(granted, func(a, b answered) int { return a.begin.Compare(b.begin) })
	return granted
}

// check requires that no interval has more grants than the limit. A grant counts in an interval only if its call began and
// ended in it. With `local`, all instances may grant the rate once more in intervals that touch the outage, or the second
// after the restart in which instances still reconnect (docs/outages.md).
func check(t *testing.T, granted []answered, one limit, killed time.Time, restarted time.Time) {
	fullest, fullestOfOutage := 0, 0
	for first, start := range granted {
		count := 0
		for _, call := range granted[first:] {
			if call.begin.Sub(start.begin) >= interval {
				break
			}
			if call.end.Sub(start.begin) < interval {
				count++
			}
		}
		touches := start.begin.After(killed.Add(-interval)) && start.begin.Before(restarted.Add(interval+time.Second))
		if touches && one.policy == "local" {
			fullestOfOutage = max(fullestOfOutage, count)
		} else {
			fullest = max(fullest, count)
		}
	}
	fmt.Printf("%s: fullest interval %d of %d, around the outage %d\n", one.name, fullest, one.rate, fullestOfOutage)
	require.LessOrEqual(t, fullest, one.rate, one.name)
	require.LessOrEqual(t, fullestOfOutage, 2*one.rate, one.name)
	require.Positive(t, fullest)
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
