// Command descriptors prints the descriptors of the services that the rate limit service of Tidegate serves, as a
// google.protobuf.FileDescriptorSet: the methods that are served, with the messages and enums that they use. Other declarations,
// options and comments are left out, so that the files do not import what nothing uses.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

var methods = []protoreflect.FullName{
	"envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",
	"grpc.health.v1.Health.Check",
	"grpc.health.v1.Health.Watch",
	"grpc.reflection.v1.ServerReflection.ServerReflectionInfo",
	"grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo",
}

func main() {
	all := &used{names: map[protoreflect.FullName]bool{}}
	for _, name := range methods {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		method := found.(protoreflect.MethodDescriptor)
		all.names[name] = true
		all.message(method.Input())
		all.message(method.Output())
		all.file(method.ParentFile())
	}
	slices.SortFunc(all.files, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	set := &descriptorpb.FileDescriptorSet{}
	for _, file := range all.files {
		set.File = append(set.File, all.pruned(file))
	}
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(bytes)
}

// used has the declarations that are used, and their files.
type used struct {
	names map[protoreflect.FullName]bool
	files []protoreflect.FileDescriptor
}

// message adds a message with all that it uses, and the message that it is declared in.
func (u *used) message(message protoreflect.MessageDescriptor) {
	if u.names[message.FullName()] {
		return
	}
	u.names[message.FullName()] = true
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if field.Message() != nil {
			u.message(field.Message())
		}
		if field.Enum() != nil {
			u.enum(field.Enum())
		}
	}
	u.parent(message)
}

func (u *used) enum(enum protoreflect.EnumDescriptor) {
	u.names[enum.FullName()] = true
	u.parent(enum)
}

func (u *used) parent(declared protoreflect.Descriptor) {
	if outer, ok := declared.Parent().(protoreflect.MessageDescriptor); ok {
		u.message(outer)
	}
	u.file(declared.ParentFile())
}

// file adds a file.
func (u *used) file(file protoreflect.FileDescriptor) {
	if !slices.ContainsFunc(u.files, func(other protoreflect.FileDescriptor) bool { return other.Path() == file.Path() }) {
		u.files = append(u.files, file)
	}
}

// pruned returns a file with the declarations that are used.
func (u *used) pruned(file protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	pruned := protodesc.ToFileDescriptorProto(file)
	scope := pruned.GetPackage()
	pruned.MessageType = u.messages(scope, pruned.MessageType)
	pruned.EnumType = u.enums(scope, pruned.EnumType)
	for _, service := range pruned.Service {
		name := string(join(scope, service.GetName()))
		service.Options = nil
		service.Method = slices.DeleteFunc(service.Method, func(method *descriptorpb.MethodDescriptorProto) bool {
			method.Options = nil
			return !u.names[join(name, method.GetName())]
		})
	}
	pruned.Service = slices.DeleteFunc(pruned.Service, func(service *descriptorpb.ServiceDescriptorProto) bool {
		return len(service.Method) == 0
	})
	pruned.Options, pruned.Extension, pruned.PublicDependency, pruned.WeakDependency = nil, nil, nil, nil
	pruned.Dependency = u.imports(pruned)
	return pruned
}

func (u *used) messages(scope string, messages []*descriptorpb.DescriptorProto) []*descriptorpb.DescriptorProto {
	messages = slices.DeleteFunc(messages, func(message *descriptorpb.DescriptorProto) bool {
		return !u.names[join(scope, message.GetName())]
	})
	for _, message := range messages {
		name := string(join(scope, message.GetName()))
		message.NestedType = u.messages(name, message.NestedType)
		message.EnumType = u.enums(name, message.EnumType)
		message.Extension, message.ExtensionRange = nil, nil
		isMap := message.GetOptions().GetMapEntry()
		message.Options = nil
		if isMap {
			message.Options = &descriptorpb.MessageOptions{MapEntry: &isMap}
		}
		for _, field := range message.Field {
			field.Options = nil
		}
		for _, oneof := range message.OneofDecl {
			oneof.Options = nil
		}
	}
	return messages
}

func (u *used) enums(scope string, enums []*descriptorpb.EnumDescriptorProto) []*descriptorpb.EnumDescriptorProto {
	enums = slices.DeleteFunc(enums, func(enum *descriptorpb.EnumDescriptorProto) bool {
		return !u.names[join(scope, enum.GetName())]
	})
	for _, enum := range enums {
		enum.Options = nil
		for _, value := range enum.Value {
			value.Options = nil
		}
	}
	return enums
}

// imports returns the files of the types that a file uses.
func (u *used) imports(file *descriptorpb.FileDescriptorProto) []string {
	var names []string
	for _, message := range file.MessageType {
		names = append(names, types(message)...)
	}
	for _, service := range file.Service {
		for _, method := range service.Method {
			names = append(names, method.GetInputType(), method.GetOutputType())
		}
	}
	var paths []string
	for _, name := range names {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.TrimPrefix(name, ".")))
		if err != nil {
			panic(err)
		}
		if path := found.ParentFile().Path(); path != file.GetName() {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// types returns the names of the types of all fields.
func types(message *descriptorpb.DescriptorProto) (names []string) {
	for _, field := range message.Field {
		if field.TypeName != nil {
			names = append(names, field.GetTypeName())
		}
	}
	for _, nested := range message.NestedType {
		names = append(names, types(nested)...)
	}
	return names
}

func join(scope, name string) protoreflect.FullName {
	return protoreflect.FullName(strings.TrimPrefix(scope+"."+name, "."))
}
