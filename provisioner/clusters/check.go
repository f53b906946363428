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

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// checkTimeout bounds one look at a remote cluster.
const checkTimeout = 5 * time.Second

// finding is what one look at a remote cluster showed.
type finding struct {
	// unreachable and unauthorized are sentences, empty when all is well.
	unreachable  string
	unauthorized string
	// rejected: the API server does not know who asks.
	rejected   bool
	clusterUID string
	version    string
	// asking: namespaces there are made on request of this home.
	asking bool
	// room: home may see how much room there is.
	room bool
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
func check(ctx context.Context, client kubernetes.Interface, homeID string) finding {
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
		ok, err := allowed(ctx, client, attributes)
		if err != nil {
			return failed(err, "ask for its own rights")
		}
		if !ok {
			missing = append(missing, attributes.Verb+" "+attributes.Resource)
		}
	}
	if len(missing) > 0 {
		found.unauthorized = fmt.Sprintf("the kubeconfig may not %s there: %s", strings.Join(missing, ", "), remedy)
		return found
	}
	if found.asking, err = asksForNamespaces(ctx, client, homeID); err != nil {
		return failed(err, "ask for its own rights")
	}
	if found.room, err = showsRoom(ctx, client); err != nil {
		return failed(err, "ask for its own rights")
	}
	return found
}

func allowed(ctx context.Context, client kubernetes.Interface, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// asksForNamespaces says whether a remote agent there makes namespaces for this
// home: the kind exists, and home may use it in its tenant namespace.
func asksForNamespaces(ctx context.Context, client kubernetes.Interface, homeID string) (bool, error) {
	ok, err := allowed(ctx, client, authorizationv1.ResourceAttributes{
		Verb: "create", Group: remotev1alpha1.GroupVersion.Group, Resource: "namespacerequests", Namespace: keys.TenantPrefix + homeID})
	if err != nil || !ok {
		return false, err
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/apis/" + remotev1alpha1.GroupVersion.String()).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// remedy is how a kubeconfig gets the rights that it lacks.
const remedy = "if the remote agent runs there, let its owner look at the HomeCluster of this cluster (kubectl lodestone peer makes it); otherwise apply deploy/remote-volumes"

// failed sorts the error of a request; what is what that request does.
func failed(err error, what string) finding {
	switch {
	case apierrors.IsUnauthorized(err):
		return finding{rejected: true, unauthorized: "its API server does not accept the credentials of the kubeconfig: renew them in the Secret"}
	case apierrors.IsForbidden(err):
		return finding{unauthorized: fmt.Sprintf("the kubeconfig may not %s there: %s", what, remedy)}
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
			return fmt.Errorf("%.1000s", strings.ToValidUTF8(err.Error(), ""))
		}
		err = inner
	}
}
