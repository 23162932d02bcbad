package tidegate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/envoyproxy/ratelimit/src/tidegate"
	"github.com/envoyproxy/ratelimit/test/common"
)

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

// memory starts a Tidegate with limits in its memory.
func memory(t *testing.T, files ...string) *tidegate.Service {
	t.Helper()
	return started(t, tidegate.Options{Store: "memory", Algorithm: "token_bucket", Files: files})
}

func started(t *testing.T, options tidegate.Options) *tidegate.Service {
	t.Helper()
	service, err := tidegate.Start(options)
	require.NoError(t, err)
	return service
}

// read returns a file of the tests of envoyproxy/ratelimit.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	require.NoError(t, err)
	return string(text)
}

// descriptor returns the entries of `KEY=VALUE` texts.
func descriptor(entries ...string) (result [][2]string) {
	for _, entry := range entries {
		key, value, _ := strings.Cut(entry, "=")
		result = append(result, [2]string{key, value})
	}
	return result
}

// ask makes a call that costs the same for each of its descriptors.
func ask(
	t *testing.T, service *tidegate.Service, domain string, hits uint32, descriptors ...[][2]string,
) *pb.RateLimitResponse {
	t.Helper()
	response, err := service.Ask(common.NewRateLimitRequest(domain, descriptors, hits))
	require.NoError(t, err)
	return response
}

// wants checks the only status of an answer.
func wants(t *testing.T, response *pb.RateLimitResponse, code pb.RateLimitResponse_Code, limit string, remaining int) {
	t.Helper()
	require.Len(t, response.Statuses, 1)
	require.Equal(t, code, response.OverallCode)
	wantsStatus(t, response.Statuses[0], code, limit, remaining)
}

// wantsStatus checks the status of a descriptor. The limit is `RATE UNIT`, or empty if there is none.
func wantsStatus(
	t *testing.T, status *pb.RateLimitResponse_DescriptorStatus, code pb.RateLimitResponse_Code, limit string, remaining int,
) {
	t.Helper()
	found := ""
	if current := status.CurrentLimit; current != nil {
		found = fmt.Sprintf("%d %v", current.RequestsPerUnit, current.Unit)
	}
	require.Equal(t, code, status.Code, "%v", status)
	require.Equal(t, limit, found, "%v", status)
	require.EqualValues(t, remaining, status.LimitRemaining, "%v", status)
}

func seconds(until *durationpb.Duration) int64 { return until.GetSeconds() }
