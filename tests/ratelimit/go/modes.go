package ratelimit

import (
	"reflect"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoyproxy/ratelimit/src/config"
)

// switches returns the lines below `service` of the rule file for the modes that a test sets by environment variables.
func (this *service) switches() (lines []string) {
	return lines
}

// addMetadata adds the metadata of a limit to its rule. Older versions of envoyproxy/ratelimit have none.
func addMetadata(rule map[string]interface{}, limit *config.RateLimit) {
	field := reflect.ValueOf(limit).Elem().FieldByName("Metadata")
	if !field.IsValid() {
		return
	}
	if metadata := field.Interface().(*structpb.Struct); metadata != nil {
		rule["metadata"] = metadata.AsMap()
	}
}
