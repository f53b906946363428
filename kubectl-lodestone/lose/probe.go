package lose

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/kubeconfig"
)

// probeTimeout bounds the one question that the plugin itself asks of a cluster.
const probeTimeout = 5 * time.Second

// silent asks the cluster itself, without credentials, whether it is there: what
// its RemoteCluster says is as old as the provisioner's last look. Where the
// kubeconfig cannot be read, only that counts.
func silent(ctx context.Context, home *access.Cluster, remote *v1alpha1.RemoteCluster) error {
	ref := remote.Spec.KubeconfigSecretRef
	secret, err := home.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return home.Explain("get Secret "+ref.Namespace+"/"+ref.Name, err)
	}
	key := ref.Key
	if key == "" {
		key = "kubeconfig"
	}
	config, err := kubeconfig.Parse(secret.Data[key])
	if err != nil {
		return nil //nolint:nilerr // nothing leads there, so it cannot be asked
	}
	if answers(ctx, config) {
		return outcome.Refuse("cluster %q answers at %s, so nothing there is lost: see why the provisioner says otherwise (kubectl lodestone status)", remote.Name, config.Host)
	}
	return nil
}

// answers says whether the API server that a kubeconfig names is there and well.
// Another server at its address has another certificate.
func answers(ctx context.Context, config *rest.Config) bool {
	config = rest.AnonymousClientConfig(config)
	config.Timeout = probeTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/readyz", config.Host), nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10))
	_ = response.Body.Close()
	return response.StatusCode < http.StatusInternalServerError
}
