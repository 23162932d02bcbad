package ratelimit

import (
	"fmt"
	"strings"
	"sync"

	pb_struct "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/context"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"gopkg.in/yaml.v2"

	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/envoyproxy/ratelimit/src/redis"
	"github.com/envoyproxy/ratelimit/src/tidegate"
)

// watchedConfig keeps the limits that a test has given to a call.
type watchedConfig struct {
	config.RateLimitConfig
	limits []*config.RateLimit
}

func (this *watchedConfig) GetLimit(
	ctx context.Context, domain string, descriptor *pb_struct.RateLimitDescriptor,
) *config.RateLimit {
	limit := this.RateLimitConfig.GetLimit(ctx, domain, descriptor)
	this.limits = append(this.limits, limit)
	return limit
}

// watchedCache keeps the statuses that a test has given to a call.
type watchedCache struct {
	limiter.RateLimitCache
	statuses []*pb.RateLimitResponse_DescriptorStatus
}

func (this *watchedCache) DoLimit(
	ctx context.Context, request *pb.RateLimitRequest, limits []*config.RateLimit,
) []*pb.RateLimitResponse_DescriptorStatus {
	// Tests compare the messages with all their internal fields, which reading by reflection changes: returns new ones.
	var result []*pb.RateLimitResponse_DescriptorStatus
	for _, status := range this.RateLimitCache.DoLimit(ctx, request, limits) {
		result = append(result, &pb.RateLimitResponse_DescriptorStatus{
			Code: status.Code, CurrentLimit: status.CurrentLimit, LimitRemaining: status.LimitRemaining,
		})
	}
	this.statuses = result
	return result
}

// shouldRateLimitWorker replaces the function of envoyproxy/ratelimit: it answers the call, too, and a Tidegate whose limits
// have the counts that the test assumes must give the same answer.
func (this *service) shouldRateLimitWorker(ctx context.Context, request *pb.RateLimitRequest) *pb.RateLimitResponse {
	this.configLock.RLock()
	watched := *this
	this.configLock.RUnlock()
	watched.configLock = sync.RWMutex{}
	limits, cache := &watchedConfig{}, &watchedCache{RateLimitCache: this.cache}
	if watched.config != nil {
		limits.RateLimitConfig = watched.config
		watched.config = limits
	}
	watched.cache = cache
	defer failedByBoth(request, limits)
	theirs := watched.answer(ctx, request)
	ours, err := this.tidegate(request, limits.limits, cache.statuses)
	if err != nil {
		tidegate.Record("rejected", err.Error())
		return theirs
	}
	differences := append(compareCodes(theirs, ours), compareStatuses(cache.statuses, ours)...)
	differences = append(differences, compareExtras(theirs, ours)...)
	for _, difference := range differences {
		tidegate.Record(difference[0], difference[1])
	}
	if len(differences) == 0 {
		tidegate.Record("same", fmt.Sprintf("%v: %v", request, ours.OverallCode))
	}
	return withCodes(theirs, ours)
}

// withCodes returns the answer of envoyproxy/ratelimit with the codes of Tidegate.
func withCodes(theirs *pb.RateLimitResponse, ours *pb.RateLimitResponse) *pb.RateLimitResponse {
	theirs.OverallCode = ours.OverallCode
	for i, status := range theirs.Statuses {
		status.Code = ours.Statuses[i].Code
	}
	return theirs
}

// failedByBoth runs after a call of envoyproxy/ratelimit has failed: Tidegate must fail with the same message. A failure of
// Redis becomes a store that is unreachable.
func failedByBoth(request *pb.RateLimitRequest, limits *watchedConfig) {
	failure := recover()
	if failure == nil {
		return
	}
	options := tidegate.Options{Store: "memory", Algorithm: "token_bucket", Files: []string{file(request, limits.limits)}}
	if _, isRedis := failure.(redis.RedisError); isRedis {
		options.Store = "redis://127.0.0.1:1"
	}
	service, err := tidegate.Start(options)
	if err == nil {
		_, err = service.Ask(request)
	}
	if message, wanted := status.Convert(err).Message(), fmt.Sprint(failure); message == wanted {
		tidegate.Record("same", wanted)
	} else {
		tidegate.Record("error", fmt.Sprintf("%q, not %q", message, wanted))
	}
	panic(failure)
}

// tidegate asks a Tidegate whose limits have the counts before the call that explain these statuses.
func (this *service) tidegate(
	request *pb.RateLimitRequest, limits []*config.RateLimit, statuses []*pb.RateLimitResponse_DescriptorStatus,
) (*pb.RateLimitResponse, error) {
	options := tidegate.Options{Store: "memory", Algorithm: "token_bucket", Files: []string{file(request, limits)}}
	options.Switches = this.switches()
	service, err := tidegate.Start(options)
	if err != nil {
		return nil, err
	}
	for i, limit := range limits {
		if used := usedBefore(limit, statuses[i]); used > 0 {
			descriptor := proto.Clone(request.Descriptors[i]).(*pb_struct.RateLimitDescriptor)
			descriptor.HitsAddend = wrapperspb.UInt64(used)
			descriptors := []*pb_struct.RateLimitDescriptor{descriptor}
			if _, err := service.Ask(&pb.RateLimitRequest{Domain: request.Domain, Descriptors: descriptors}); err != nil {
				return nil, err
			}
		}
	}
	return service.Ask(request)
}

// usedBefore returns the hits before a call of one hit.
func usedBefore(limit *config.RateLimit, status *pb.RateLimitResponse_DescriptorStatus) uint64 {
	if limit == nil || limit.Unlimited {
		return 0
	}
	whole := limit.Limit.RequestsPerUnit
	isOver := status.Code == pb.RateLimitResponse_OVER_LIMIT || limit.ShadowMode && status.LimitRemaining == 0
	if isOver {
		return uint64(whole)
	}
	if status.LimitRemaining >= whole {
		return 0 // some tests let more remain than the limit
	}
	return uint64(whole - status.LimitRemaining - 1)
}

// file returns a file of envoyproxy/ratelimit with these limits of the descriptors.
func file(request *pb.RateLimitRequest, limits []*config.RateLimit) string {
	descriptors := []interface{}{map[string]interface{}{"key": "unused"}}
	for i, limit := range limits {
		if limit != nil {
			descriptors = append(descriptors, rule(request.Descriptors[i].Entries, limit))
		}
	}
	domain := request.Domain
	if domain == "" {
		domain = "unused"
	}
	text, err := yaml.Marshal(map[string]interface{}{"domain": domain, "descriptors": descriptors})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func rule(entries []*pb_struct.RateLimitDescriptor_Entry, limit *config.RateLimit) map[string]interface{} {
	node := map[string]interface{}{"key": entries[0].Key, "value": entries[0].Value}
	if len(entries) > 1 {
		node["descriptors"] = []interface{}{rule(entries[1:], limit)}
		return node
	}
	quota := map[string]interface{}{}
	if limit.Unlimited {
		quota["unlimited"] = true
	} else {
		quota["unit"] = limit.Limit.Unit.String()
		quota["requests_per_unit"] = limit.Limit.RequestsPerUnit
	}
	if limit.Limit.Name != "" {
		quota["name"] = limit.Limit.Name
	}
	node["rate_limit"] = quota
	if limit.ShadowMode {
		node["shadow_mode"] = true
	}
	if limit.QuotaMode {
		node["quota_mode"] = true
	}
	addMetadata(node, limit)
	return node
}

// compareCodes returns the differences of the codes, each with a fixed word.
func compareCodes(theirs *pb.RateLimitResponse, ours *pb.RateLimitResponse) (differences [][2]string) {
	if theirs.OverallCode != ours.OverallCode {
		differences = append(differences, [2]string{"overall_code", fmt.Sprintf("%v, not %v", ours, theirs)})
	}
	for i, status := range theirs.Statuses {
		if status.Code != ours.Statuses[i].Code {
			differences = append(differences, [2]string{"code", fmt.Sprintf("%v, not %v", ours.Statuses[i], status)})
		}
	}
	return differences
}

// compareStatuses compares limits and remaining requests with those that a test assumes, if they are possible.
func compareStatuses(
	statuses []*pb.RateLimitResponse_DescriptorStatus, ours *pb.RateLimitResponse,
) (differences [][2]string) {
	for i, status := range statuses {
		found := ours.Statuses[i]
		limit := status.CurrentLimit
		if limit == nil || status.LimitRemaining >= limit.RequestsPerUnit {
			continue
		}
		if !proto.Equal(limit, found.CurrentLimit) {
			differences = append(differences, [2]string{"limit", fmt.Sprintf("%v, not %v", found, status)})
		}
		if status.LimitRemaining != found.LimitRemaining {
			differences = append(differences, [2]string{"remaining", fmt.Sprintf("%v, not %v", found, status)})
		}
	}
	return differences
}

// compareExtras compares the header fields of envoyproxy/ratelimit, and the metadata.
func compareExtras(theirs *pb.RateLimitResponse, ours *pb.RateLimitResponse) (differences [][2]string) {
	if found, wanted := fieldsOf(theirs, ours), fieldsOf(theirs, theirs); found != wanted {
		differences = append(differences, [2]string{"fields", fmt.Sprintf("%s, not %s", found, wanted)})
	}
	if theirs.DynamicMetadata != nil && !proto.Equal(theirs.DynamicMetadata, ours.DynamicMetadata) {
		details := fmt.Sprintf("%v, not %v", ours.DynamicMetadata, theirs.DynamicMetadata)
		differences = append(differences, [2]string{"metadata", details})
	}
	return differences
}

// fieldsOf returns the fields of a response that envoyproxy/ratelimit sends, except for the time, which a test sets.
func fieldsOf(theirs *pb.RateLimitResponse, response *pb.RateLimitResponse) string {
	text := ""
	for i, wanted := range theirs.ResponseHeadersToAdd {
		for _, field := range response.ResponseHeadersToAdd {
			if strings.EqualFold(field.Key, wanted.Key) {
				text += wanted.Key
				if i < len(theirs.ResponseHeadersToAdd)-1 {
					text += ": " + field.Value
				}
				text += "; "
			}
		}
	}
	return text
}
