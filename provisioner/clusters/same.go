package clusters

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Clients returns both clients of the cluster that its kubeconfig leads to now, nil if
// there is none: two calls may find those of two clusters.
func (c *Cluster) Clients() (kubernetes.Interface, dynamic.Interface) {
	if connection := c.current(); connection != nil {
		return connection.client, connection.dynamic
	}
	return nil, nil
}

// Same asks whether a client leads to the cluster that holds the volumes of a
// RemoteCluster. One that nobody knows, or of which that is not known yet, is none.
func Same(ctx context.Context, client kubernetes.Interface, remote *v1alpha1.RemoteCluster) (bool, error) {
	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("look at namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return remote != nil && remote.Status.ClusterUID != "" && remote.Status.ClusterUID == string(system.UID), nil
}
