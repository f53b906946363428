// Package remoteclusters reads and writes RemoteCluster objects.
package remoteclusters

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/apiclient"
)

// Client reads and writes RemoteCluster objects. It is safe for
// concurrent use and does not retry.
type Client = gentype.ClientWithList[*v1alpha1.RemoteCluster, *v1alpha1.RemoteClusterList]

// NewClient returns a client for the cluster that config names.
func NewClient(config *rest.Config) (*Client, error) {
	client, codec, err := apiclient.New(config, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithList("remoteclusters", client, codec, "",
		func() *v1alpha1.RemoteCluster { return &v1alpha1.RemoteCluster{} },
		func() *v1alpha1.RemoteClusterList { return &v1alpha1.RemoteClusterList{} }), nil
}

// NewInformer returns an informer on all RemoteCluster objects; the
// caller runs it.
func NewInformer(client *Client) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: client.Watch,
	}, client), &v1alpha1.RemoteCluster{}, 0, cache.Indexers{})
}
