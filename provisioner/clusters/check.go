package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
)

// checkTimeout bounds one look at a remote cluster.
const checkTimeout = 5 * time.Second

// finding is what one look at a remote cluster showed.
type finding struct {
	// unreachable and unauthorized are sentences, empty when all is well.
	unreachable  string
	unauthorized string
	clusterUID   string
	version      string
}

// needed are the cluster-wide rights without which nothing works. Rights in
// mapped namespaces are found out when they are used.
var needed = []authorizationv1.ResourceAttributes{
	{Verb: "list", Resource: "persistentvolumes"},
	{Verb: "watch", Resource: "persistentvolumes"},
	{Verb: "get", Resource: "persistentvolumes"},
	{Verb: "list", Group: "storage.k8s.io", Resource: "storageclasses"},
	{Verb: "watch", Group: "storage.k8s.io", Resource: "storageclasses"},
}

// check looks at a remote cluster once.
func check(ctx context.Context, client kubernetes.Interface) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var found finding
	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return failed(err, "get namespace kube-system, which tells clusters apart")
	}
	found.clusterUID = string(system.UID)
	// Not Discovery().ServerVersion(), which knows no deadline.
	var version apiversion.Info
	raw, err := client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &version)
	}
	if err != nil {
		return failed(err, "get /version")
	}
	found.version = version.GitVersion
	var missing []string
	for _, attributes := range needed {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return failed(err, "ask for its own rights")
		}
		if !review.Status.Allowed {
			missing = append(missing, attributes.Verb+" "+attributes.Resource)
		}
	}
	if len(missing) > 0 {
		found.unauthorized = fmt.Sprintf("the kubeconfig may not %s there: apply deploy/remote-volumes", strings.Join(missing, ", "))
	}
	return found
}

// failed sorts the error of a request; what is what that request does.
func failed(err error, what string) finding {
	switch {
	case apierrors.IsUnauthorized(err):
		return finding{unauthorized: "its API server does not accept the credentials of the kubeconfig: renew them in the Secret"}
	case apierrors.IsForbidden(err):
		return finding{unauthorized: fmt.Sprintf("the kubeconfig may not %s: apply deploy/remote-volumes there", what)}
	}
	return finding{unreachable: fmt.Sprintf("its API server does not answer as it should: %v", cause(err))}
}

// cause shortens an error to what went wrong, without the request's address.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", checkTimeout)
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
