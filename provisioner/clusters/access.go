package clusters

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// Access is how requests get to a remote cluster.
type Access struct {
	Client kubernetes.Interface
	// Remote is nil where the cluster runs no agent.
	Remote *remoteapi.Client
	Config *rest.Config
	// Dynamic reads and writes VolumeSnapshots, which the cluster may not have.
	Dynamic dynamic.Interface
}

// Access returns how requests get to the cluster; why says why none may be sent, and
// is empty if they may.
func (c *Cluster) Access() (access Access, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	usable, _, message := c.verdict.usable()
	if !usable || c.connection == nil {
		if message == "" {
			message = "it is being looked at for the first time"
		}
		return Access{}, "cluster " + c.id + " cannot be used now: " + message
	}
	access = Access{Client: c.connection.client, Config: c.connection.config, Dynamic: c.connection.dynamic}
	if c.verdict.asking {
		access.Remote = c.connection.remote
	}
	return access, ""
}

// Gone asks the API server whether there is no RemoteCluster of the given name.
func (r *Registry) Gone(ctx context.Context, id string) (bool, error) {
	_, err := r.remotes.Get(ctx, id, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look at RemoteCluster %s: %w", id, err)
	}
	return false, nil
}
