package tidegate_test

import (
	"testing"

	"github.com/envoyproxy/ratelimit/src/tidegate"
)

const limiterFile = `
domain: domain
descriptors:
  - { key: key, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: ten, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: ten_in_shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 10 } }
`

// TestLimiter has the cases of test/limiter: which calls share a counter, and the status for each count.
func TestLimiter(t *testing.T) {
	t.Run("TestGenerateCacheKeys", eachDescriptorHasItsCounter)
	t.Run("TestGenerateCacheKeysWithShareThreshold", wildcardsShareACounter)
	t.Run("TestOverLimitWithLocalCache", func(t *testing.T) { rejectsAgain(t, "key=value") })
	t.Run("TestNoOverLimitWithLocalCache", func(t *testing.T) {
		wants(t, ask(t, memory(t, limiterFile), "domain", 1, descriptor("key=value")), ok, "5 HOUR", 4)
	})
	t.Run("TestGetResponseStatusEmptyKey", func(t *testing.T) {
		wants(t, ask(t, memory(t, limiterFile), "domain", 1, descriptor("other=value")), ok, "", 0)
	})
	t.Run("TestGetResponseStatusOverLimitWithLocalCache", func(t *testing.T) { rejectsAgain(t, "key=value") })
	t.Run("TestGetResponseStatusOverLimitWithLocalCacheShadowMode", func(t *testing.T) {
		service := memory(t, limiterFile)
		for range 3 {
			ask(t, service, "domain", 5, descriptor("shadow=value"))
		}
		wants(t, ask(t, service, "domain", 2, descriptor("shadow=value")), ok, "5 HOUR", 0)
	})
	t.Run("TestGetResponseStatusOverLimit", func(t *testing.T) {
		service := memory(t, limiterFile)
		ask(t, service, "domain", 2, descriptor("key=value"))
		wants(t, ask(t, service, "domain", 5, descriptor("key=value")), over, "5 HOUR", 0)
	})
	t.Run("TestGetResponseStatusOverLimitShadowMode", func(t *testing.T) {
		service := memory(t, limiterFile)
		ask(t, service, "domain", 2, descriptor("shadow=value"))
		wants(t, ask(t, service, "domain", 5, descriptor("shadow=value")), ok, "5 HOUR", 0)
	})
	t.Run("TestGetResponseStatusBelowLimit", func(t *testing.T) { countsHits(t, "ten=value") })
	t.Run("TestGetResponseStatusBelowLimitShadowMode", func(t *testing.T) { countsHits(t, "ten_in_shadow=value") })
}

func eachDescriptorHasItsCounter(t *testing.T) {
	other := "domain: other\ndescriptors: [{ key: key, rate_limit: { unit: hour, requests_per_unit: 5 } }]\n"
	service := memory(t, limiterFile, other)
	wants(t, ask(t, service, "domain", 5, descriptor("key=value")), ok, "5 HOUR", 0)
	wants(t, ask(t, service, "domain", 1, descriptor("key=value")), over, "5 HOUR", 0)
	wants(t, ask(t, service, "domain", 1, descriptor("key=another")), ok, "5 HOUR", 4)
	wants(t, ask(t, service, "other", 1, descriptor("key=value")), ok, "5 HOUR", 4)
}

func wildcardsShareACounter(t *testing.T) {
	service := memory(t, read(t, "config/share_threshold.yaml"))
	exhaust(t, service, 100, descriptor("files=files/a.pdf"))
	for _, file := range []string{"b.csv", "c.txt", "d.json", "e.xml", "subdir/f.txt"} {
		wants(t, ask(t, service, "test-domain", 1, descriptor("files=files/"+file)), over, "100 MINUTE", 0)
	}
	exhaust(t, service, 200, descriptor("nested=parent", "files=nested/file1.txt"))
	nested := ask(t, service, "test-domain", 1, descriptor("nested=parent", "files=nested/file2.csv"))
	wants(t, nested, over, "200 MINUTE", 0)
	exhaust(t, service, 300, descriptor("files=top/file1.txt", "files=nested/sub1.txt"))
	several := ask(t, service, "test-domain", 1, descriptor("files=top/file2.pdf", "files=nested/sub2.csv"))
	wants(t, several, over, "300 MINUTE", 0)
}

func exhaust(t *testing.T, service *tidegate.Service, hits uint32, entries [][2]string) {
	t.Helper()
	if response := ask(t, service, "test-domain", hits, entries); response.OverallCode != ok {
		t.Fatalf("%v", response)
	}
}

func rejectsAgain(t *testing.T, entry string) {
	service := memory(t, limiterFile)
	ask(t, service, "domain", 5, descriptor(entry))
	for range 3 {
		wants(t, ask(t, service, "domain", 2, descriptor(entry)), over, "5 HOUR", 0)
	}
}

func countsHits(t *testing.T, entry string) {
	service := memory(t, limiterFile)
	wants(t, ask(t, service, "domain", 2, descriptor(entry)), ok, "10 HOUR", 8)
	wants(t, ask(t, service, "domain", 4, descriptor(entry)), ok, "10 HOUR", 4)
}
