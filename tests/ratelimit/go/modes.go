package ratelimit

import (
	"fmt"
	"reflect"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoyproxy/ratelimit/src/config"
)

// switches returns the lines below `service` of the rule file for the modes that a test sets by environment variables.
func (this *service) switches() (lines []string) {
	if this.globalShadowMode {
		lines = append(lines, "shadow: true")
	}
	if this.globalQuotaMode {
		lines = append(lines, "quota_mode: true")
	}
	if this.customHeadersEnabled {
		names := fmt.Sprintf("{ limit: %s, remaining: %s, reset: %s }",
			this.customHeaderLimitHeader, this.customHeaderRemainingHeader, this.customHeaderResetHeader)
		lines = append(lines, "headers: [ietf, legacy]", "legacy_names: "+names)
	}
	// Older versions of envoyproxy/ratelimit have no such field.
	if field := reflect.ValueOf(this).Elem().FieldByName("responseDynamicMetadataEnabled"); field.IsValid() && field.Bool() {
		lines = append(lines, "dynamic_metadata: true")
	}
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
