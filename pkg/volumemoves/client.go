// Package volumemoves reads and writes VolumeMove objects.
package volumemoves

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

// Moves reads and writes the VolumeMoves of a namespace. It is safe for concurrent
// use and does not retry.
type Moves = gentype.ClientWithList[*v1alpha1.VolumeMove, *v1alpha1.VolumeMoveList]

// Client makes the typed clients of one cluster.
type Client struct {
	rest  *rest.RESTClient
	codec runtime.ParameterCodec
}

// NewClient returns a client for the cluster that config names.
func NewClient(config *rest.Config) (*Client, error) {
	client, codec, err := apiclient.New(config, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client, codec: codec}, nil
}

// In returns the client of the VolumeMoves of a namespace, or of all if that is
// empty.
func (c *Client) In(namespace string) *Moves {
	return gentype.NewClientWithList("volumemoves", c.rest, c.codec, namespace,
		func() *v1alpha1.VolumeMove { return &v1alpha1.VolumeMove{} },
		func() *v1alpha1.VolumeMoveList { return &v1alpha1.VolumeMoveList{} })
}

// NewInformer returns an informer on all VolumeMoves; the caller runs it.
func NewInformer(client *Client) cache.SharedIndexInformer {
	all := client.In(metav1.NamespaceAll)
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, options)
		},
		WatchFuncWithContext: all.Watch,
	}, all), &v1alpha1.VolumeMove{}, 0, cache.Indexers{})
}
