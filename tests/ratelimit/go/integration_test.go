package tidegate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoyproxy/ratelimit/src/tidegate"
)

const runtimeFolder = "integration/runtime/current/ratelimit"

// TestIntegration has the cases of test/integration that are calls to a service on one Redis.
func TestIntegration(t *testing.T) {
	t.Run("TestBasicConfig", func(t *testing.T) { basicConfig(t, "") })
	t.Run("TestBasicAuthConfig", func(t *testing.T) { basicConfig(t, "password123") })
	t.Run("TestBasicReloadConfig", reload)
	t.Run("TestShareThreshold", shareThreshold)
}

// onRedis starts a Tidegate with the configuration of test/integration and the windows of envoyproxy/ratelimit.
func onRedis(t *testing.T, redis *redis) *tidegate.Service {
	files := []string{"basic.yaml", "another.yaml", "share_threshold.yaml"}
	// A busy machine may need longer than the default.
	options := tidegate.Options{Store: redis.store(5 * time.Second), Algorithm: "fixed_window"}
	for _, name := range files {
		options.Files = append(options.Files, read(t, runtimeFolder+"/config/"+name))
	}
	return started(t, options)
}

func basicConfig(t *testing.T, password string) {
	redis := startRedis(t, password)
	service := onRedis(t, redis)
	wants(t, ask(t, service, "foo", 1, descriptor("hello=world")), ok, "", 0)
	wants(t, ask(t, service, "basic", 1, descriptor("key1=foo")), ok, "50 SECOND", 49)
	waitForMinuteToLast(20 * time.Second)
	for i := range 25 {
		code, remaining := ok, 19-i
		if i >= 20 {
			code, remaining = over, 0
		}
		wants(t, ask(t, service, "another", 1, descriptor("key2=one")), code, "20 MINUTE", remaining)
	}
	for i := range 15 {
		response := ask(t, service, "another", 1, descriptor("key2=two"), descriptor("key3=two"))
		// As with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT of envoyproxy/ratelimit: a rejected call takes nothing.
		code, limit, ofTwenty, ofTen := ok, "20 MINUTE", 19-i, 9-i
		if i >= 10 {
			code, ofTwenty, ofTen = over, 10, 0
		}
		if i > 10 {
			limit, ofTwenty = "", 0 // the rejection is known, so that Redis is not asked
		}
		require.Equal(t, code, response.OverallCode)
		wantsStatus(t, response.Statuses[0], ok, limit, ofTwenty)
		wantsStatus(t, response.Statuses[1], code, "10 HOUR", ofTen)
	}
	first := ask(t, service, "another", 1, descriptor("key4=durTest")).Statuses[0].DurationUntilReset
	require.Eventually(t, func() bool {
		later := ask(t, service, "another", 0, descriptor("key4=durTest")).Statuses[0].DurationUntilReset
		return seconds(later) < seconds(first)
	}, 10*time.Second, 50*time.Millisecond)
}

// waitForMinuteToLast waits for the next minute if the current one ends soon: each minute begins with new windows.
func waitForMinuteToLast(long time.Duration) {
	now := time.Now()
	if left := now.Truncate(time.Minute).Add(time.Minute).Sub(now); left < long {
		time.Sleep(left)
	}
}

func reload(t *testing.T) {
	service := onRedis(t, startRedis(t, ""))
	wants(t, ask(t, service, "reload", 1, descriptor("block=foo")), ok, "", 0)
	added := filepath.Join(service.Folder, "reload.yaml")
	require.NoError(t, os.WriteFile(added, []byte(read(t, runtimeFolder+"/reload.yaml")), 0o644))
	require.NoError(t, service.Process.Signal(syscall.SIGHUP))
	until(t, func() bool { return ask(t, service, "reload", 1, descriptor("block=foo")).OverallCode == over })
	wants(t, ask(t, service, "reload", 1, descriptor("key1=foo")), ok, "50 SECOND", 49)
	require.NoError(t, os.Remove(added))
	require.NoError(t, service.Process.Signal(syscall.SIGHUP))
	until(t, func() bool { return ask(t, service, "reload", 1, descriptor("block=foo")).OverallCode == ok })
}

// until waits for the effect of a reload.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, 20*time.Millisecond)
}

func shareThreshold(t *testing.T) {
	service := onRedis(t, startRedis(t, ""))
	domain := "share-threshold-test"
	for i := range 10 {
		wants(t, ask(t, service, domain, 1, descriptor("files=files/a.pdf")), ok, "10 HOUR", 9-i)
	}
	wants(t, ask(t, service, domain, 1, descriptor("files=files/b.csv")), over, "10 HOUR", 0)
	for i := range 10 {
		entry := fmt.Sprintf("files_no_share=files_no_share/%d", i)
		wants(t, ask(t, service, domain, 1, descriptor(entry)), ok, "10 HOUR", 9)
	}
}
