// Package apiclient makes REST clients for the project's own API groups.
package apiclient

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// New returns a client for one API group and version of the cluster that config
// names, and the codec of its parameters. It does not retry.
func New(config *rest.Config, version schema.GroupVersion, register func(*runtime.Scheme) error) (*rest.RESTClient, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return nil, nil, fmt.Errorf("register types of %s: %w", version, err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources have no protobuf form.
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make client of %s: %w", version, err)
	}
	return client, runtime.NewParameterCodec(scheme), nil
}
