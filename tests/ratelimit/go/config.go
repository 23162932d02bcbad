package config

import (
	"fmt"

	pb_struct "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/context"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"gopkg.in/yaml.v2"

	"github.com/envoyproxy/ratelimit/src/stats"
	"github.com/envoyproxy/ratelimit/src/tidegate"
)

// unlimited is the remaining number of requests of a descriptor whose limit is `unlimited`.
const unlimited = ^uint32(0)

// texts has the files that tests have read, by their names.
var texts = map[string]string{}

// asked is a configuration whose limits are those that Tidegate applies. All else is of envoyproxy/ratelimit.
type asked struct {
	*rateLimitConfigImpl
	service *tidegate.Service
}

// ConfigFileContentToYaml replaces the function of envoyproxy/ratelimit. Tidegate must reject the same files.
func ConfigFileContentToYaml(name string, text string) *YamlRoot {
	texts[name] = text
	defer rejectedByBoth(text)
	return configFileContentToYaml(name, text)
}

// NewRateLimitConfigImpl replaces the function of envoyproxy/ratelimit.
func NewRateLimitConfigImpl(configs []RateLimitConfigToLoad, manager stats.Manager, merge bool) RateLimitConfig {
	var files []string
	for _, config := range configs {
		files = append(files, textOf(config))
	}
	defer rejectedByBoth(files...)
	theirs := newRateLimitConfigImpl(configs, manager, merge)
	options := tidegate.Options{Store: "memory", Algorithm: "token_bucket", Files: files}
	options.Switches = []string{fmt.Sprintf("merge_domains: %v", merge)}
	service, err := tidegate.Start(options)
	if err != nil {
		tidegate.Record("rejected", err.Error())
		return theirs
	}
	return &asked{theirs.(*rateLimitConfigImpl), service}
}

// rejectedByBoth runs after envoyproxy/ratelimit has rejected files: Tidegate must reject them, too.
func rejectedByBoth(files ...string) {
	failure := recover()
	if failure == nil {
		return
	}
	if _, err := tidegate.Memory(files...); err != nil {
		tidegate.Record("same", fmt.Sprintf("rejected: %v / %v", failure, err))
	} else {
		tidegate.Record("accepted", fmt.Sprint(failure))
	}
	panic(failure)
}

func textOf(config RateLimitConfigToLoad) string {
	if text, found := texts[config.Name]; found {
		return text
	}
	var tree yaml.MapSlice
	text, err := yaml.Marshal(config.ConfigYaml)
	if err == nil {
		err = yaml.Unmarshal(text, &tree)
	}
	if err == nil {
		text, err = yaml.Marshal(withoutEmpty(tree))
	}
	if err != nil {
		panic(err)
	}
	return string(text)
}

// withoutEmpty removes the fields that a test does not set.
func withoutEmpty(node interface{}) interface{} {
	switch node := node.(type) {
	case yaml.MapSlice:
		result := yaml.MapSlice{}
		for _, item := range node {
			if value := withoutEmpty(item.Value); value != nil {
				result = append(result, yaml.MapItem{Key: item.Key, Value: value})
			}
		}
		if len(result) > 0 {
			return result
		}
	case []interface{}:
		var result []interface{}
		for _, element := range node {
			result = append(result, withoutEmpty(element))
		}
		if len(result) > 0 {
			return result
		}
	case string, bool:
		if node != "" && node != false {
			return node
		}
	default:
		return node
	}
	return nil
}

// GetLimit returns the limit of Tidegate.
func (this *asked) GetLimit(ctx context.Context, domain string, descriptor *pb_struct.RateLimitDescriptor) *RateLimit {
	theirs := this.rateLimitConfigImpl.GetLimit(ctx, domain, descriptor)
	status := this.ask(domain, descriptor, 0)
	ours := this.limitOf(status, theirs)
	if ours != nil && !ours.Unlimited {
		// No call with more hits than the limit passes. It takes nothing. A limit in the call is never a shadow.
		over := this.ask(domain, descriptor, uint64(ours.Limit.RequestsPerUnit)+1)
		ours.ShadowMode = over.Code == pb.RateLimitResponse_OK
	}
	if difference := compare(theirs, ours); difference != "" {
		tidegate.Record("limit", fmt.Sprintf("%s %v: %s", domain, descriptor, difference))
	} else {
		tidegate.Record("same", fmt.Sprintf("%s %v", domain, descriptor.Entries))
	}
	return ours
}

func (this *asked) ask(
	domain string, descriptor *pb_struct.RateLimitDescriptor, hits uint64,
) *pb.RateLimitResponse_DescriptorStatus {
	descriptor = proto.Clone(descriptor).(*pb_struct.RateLimitDescriptor)
	descriptor.HitsAddend = wrapperspb.UInt64(hits)
	request := &pb.RateLimitRequest{Domain: domain, Descriptors: []*pb_struct.RateLimitDescriptor{descriptor}}
	response, err := this.service.Ask(request)
	if err != nil {
		panic(err)
	}
	return response.Statuses[0]
}

// limitOf returns a limit with the values of Tidegate, and the statistics of envoyproxy/ratelimit.
func (this *asked) limitOf(status *pb.RateLimitResponse_DescriptorStatus, theirs *RateLimit) *RateLimit {
	if status.CurrentLimit == nil && status.LimitRemaining != unlimited {
		return nil
	}
	ours := RateLimit{Stats: this.statsManager.NewStats("only Tidegate has a limit here")}
	if theirs != nil {
		ours = *theirs
	}
	ours.Unlimited = status.LimitRemaining == unlimited
	ours.Limit = &pb.RateLimitResponse_RateLimit{}
	if limit := status.CurrentLimit; limit != nil {
		ours.Limit.RequestsPerUnit, ours.Limit.Unit, ours.Limit.Name = limit.RequestsPerUnit, limit.Unit, limit.Name
		ours.Name = limit.Name
	}
	return &ours
}

func compare(theirs *RateLimit, ours *RateLimit) string {
	switch {
	case theirs == nil && ours == nil:
		return ""
	case theirs == nil || ours == nil:
		return fmt.Sprintf("%v, not %v", ours, theirs)
	case theirs.Unlimited && ours.Unlimited:
		return ""
	case theirs.Unlimited != ours.Unlimited || theirs.ShadowMode != ours.ShadowMode || !proto.Equal(theirs.Limit, ours.Limit):
		return fmt.Sprintf("%+v, not %+v", ours, theirs)
	}
	return ""
}
