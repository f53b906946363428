// Package remoteapi reads and writes the objects of API group
// remote.lodestone.dev, which exist in remote clusters.
package remoteapi

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/apiclient"
)

// The typed clients are safe for concurrent use and do not retry.
type (
	// HomeClusters reads and writes HomeCluster objects.
	HomeClusters = gentype.ClientWithList[*remotev1alpha1.HomeCluster, *remotev1alpha1.HomeClusterList]
	// NamespaceRequests reads and writes NamespaceRequest objects.
	NamespaceRequests = gentype.ClientWithList[*remotev1alpha1.NamespaceRequest, *remotev1alpha1.NamespaceRequestList]
	// ShadowPods reads and writes ShadowPod objects.
	ShadowPods = gentype.ClientWithList[*remotev1alpha1.ShadowPod, *remotev1alpha1.ShadowPodList]
)

// Client makes the typed clients of one cluster.
type Client struct {
	rest  *rest.RESTClient
	codec runtime.ParameterCodec
}

// NewClient returns a client for the cluster that config names.
func NewClient(config *rest.Config) (*Client, error) {
	client, codec, err := apiclient.New(config, remotev1alpha1.GroupVersion, remotev1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client, codec: codec}, nil
}

// HomeClusters returns the client of HomeCluster objects.
func (c *Client) HomeClusters() *HomeClusters {
	return gentype.NewClientWithList("homeclusters", c.rest, c.codec, "",
		func() *remotev1alpha1.HomeCluster { return &remotev1alpha1.HomeCluster{} },
		func() *remotev1alpha1.HomeClusterList { return &remotev1alpha1.HomeClusterList{} })
}

// NamespaceRequests returns the client of NamespaceRequest objects of
// a namespace, or of all if that is empty.
func (c *Client) NamespaceRequests(namespace string) *NamespaceRequests {
	return gentype.NewClientWithList("namespacerequests", c.rest, c.codec, namespace,
		func() *remotev1alpha1.NamespaceRequest { return &remotev1alpha1.NamespaceRequest{} },
		func() *remotev1alpha1.NamespaceRequestList { return &remotev1alpha1.NamespaceRequestList{} })
}

// ShadowPods returns the client of ShadowPod objects of a namespace, or of all
// if that is empty.
func (c *Client) ShadowPods(namespace string) *ShadowPods {
	return gentype.NewClientWithList("shadowpods", c.rest, c.codec, namespace,
		func() *remotev1alpha1.ShadowPod { return &remotev1alpha1.ShadowPod{} },
		func() *remotev1alpha1.ShadowPodList { return &remotev1alpha1.ShadowPodList{} })
}

// lister is what an informer needs of a typed client.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// NewInformer returns an informer on the objects of a typed client that tweak,
// which may be nil, selects; the caller runs it. Example is an empty object of
// the type.
func NewInformer[L runtime.Object](client lister[L], example runtime.Object, tweak func(*metav1.ListOptions), indexers cache.Indexers) cache.SharedIndexInformer {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			tweak(&options)
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			tweak(&options)
			return client.Watch(ctx, options)
		},
	}, example, 0, indexers)
}
