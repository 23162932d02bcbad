package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// describe makes a call with messages that the service describes, as grpcurl does.
func describe(connection *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := reflection.NewServerReflectionClient(connection).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	ask := func(request *reflection.ServerReflectionRequest) (*reflection.ServerReflectionResponse, error) {
		if err := stream.Send(request); err != nil {
			return nil, err
		}
		return stream.Recv()
	}
	list := &reflection.ServerReflectionRequest_ListServices{}
	answer, err := ask(&reflection.ServerReflectionRequest{MessageRequest: list})
	if err != nil {
		return err
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, service := range answer.GetListServicesResponse().GetService() {
		symbol := &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()}
		answer, err := ask(&reflection.ServerReflectionRequest{MessageRequest: symbol})
		if err != nil {
			return err
		}
		if err := addFiles(set, answer.GetFileDescriptorResponse().GetFileDescriptorProto()); err != nil {
			return err
		}
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return err
	}
	found, err := files.FindDescriptorByName("envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit")
	if err != nil {
		return err
	}
	return callDescribed(ctx, connection, found.(protoreflect.MethodDescriptor))
}

// addFiles adds files to a set that lacks them.
func addFiles(set *descriptorpb.FileDescriptorSet, files [][]byte) error {
	for _, bytes := range files {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(bytes, file); err != nil {
			return err
		}
		isSame := func(other *descriptorpb.FileDescriptorProto) bool { return other.GetName() == file.GetName() }
		if !slices.ContainsFunc(set.File, isSame) {
			set.File = append(set.File, file)
		}
	}
	return nil
}

func callDescribed(ctx context.Context, connection *grpc.ClientConn, method protoreflect.MethodDescriptor) error {
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	text := `{ "domain": "edge", "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }], "hitsAddend": "2" }] }`
	if err := protojson.Unmarshal([]byte(text), request); err != nil {
		return err
	}
	if err := connection.Invoke(ctx, ratelimit.RateLimitService_ShouldRateLimit_FullMethodName, request, response); err != nil {
		return err
	}
	bytes, err := proto.Marshal(response)
	if err != nil {
		return err
	}
	answer := &ratelimit.RateLimitResponse{}
	if err := proto.Unmarshal(bytes, answer); err != nil {
		return err
	}
	if len(answer.GetStatuses()) != 1 || answer.GetOverallCode() != ratelimit.RateLimitResponse_OK || hasUnknown(response) {
		return errors.New(fmt.Sprint("a described call has another answer: ", response))
	}
	return nil
}

// hasUnknown tells whether a message has fields that are not described.
func hasUnknown(message protoreflect.Message) bool {
	unknown := len(message.GetUnknown()) > 0
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				unknown = unknown || hasUnknown(value.List().Get(i).Message())
			}
		default:
			unknown = unknown || hasUnknown(value.Message())
		}
		return !unknown
	})
	return unknown
}
