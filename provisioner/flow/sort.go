package flow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// sorted is what the answer to a create request for a backing claim means: it
// is there (all empty), it certainly is not and the place refuses it, or nobody
// knows.
type sorted struct {
	refusal *decide.Refusal
	retry   error
	// unsent is true when the request certainly never left this machine.
	unsent bool
}

// given is what is known of the namespace of a create request.
type given struct {
	// asked: the cluster made it on request; fresh: this is one of the first
	// attempts, and the rights there may be seconds old.
	asked, fresh bool
}

// sortCreateError is the one table of answers to a create request.
func sortCreateError(err error, cluster string, at types.NamespacedName, in given) sorted {
	place := "cluster " + cluster
	if cluster == keys.Home {
		place = "the home cluster"
	}
	refuse := func(reason, text string) sorted {
		return sorted{refusal: &decide.Refusal{Cluster: cluster, Reason: reason, Message: text}}
	}
	detail := ""
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		detail = status.Status().Message
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return sorted{}
	case errors.Is(err, errForeign):
		return refuse("ForeignClaim", fmt.Sprintf("%s already has a claim %s that does not belong to this one: remove or rename one of the two", place, at))
	case errors.Is(err, errTerminating):
		return sorted{retry: err}
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return refuse("NamespaceTerminating", fmt.Sprintf("namespace %s of %s is being deleted: wait until it is there again", at.Namespace, place))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "exceeded quota"):
		return refuse("QuotaExceeded", fmt.Sprintf("the quota of namespace %s in %s leaves no room: %s", at.Namespace, place, detail))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "storage usage per PersistentVolumeClaim"):
		return refuse("OutsideLimits", fmt.Sprintf("a LimitRange of namespace %s in %s does not allow a claim of that size: %s", at.Namespace, place, detail))
	case in.asked && in.fresh && (apierrors.IsNotFound(err) || lacksRights(err, detail)):
		return sorted{retry: err, unsent: true}
	case in.asked && (apierrors.IsNotFound(err) || lacksRights(err, detail)):
		return refuse("NotAllowed", fmt.Sprintf("%s gave namespace %s but does not let this cluster make claims there: let its administrator look at NamespaceRequest %s", place, at.Namespace, at.Namespace))
	case in.asked && apierrors.IsForbidden(err):
		return refuse("NotAllowed", fmt.Sprintf("%s does not admit the backing claim %s: %s", place, at, detail))
	case apierrors.IsForbidden(err):
		return refuse("NotAllowed", fmt.Sprintf("%s does not allow the backing claim %s (no such namespace, no rights in it, or its admission; see deploy/remote-volumes): %s", place, at, detail))
	case apierrors.IsNotFound(err):
		return refuse("NamespaceMissing", fmt.Sprintf("%s has no namespace %s: create it there and bind the rights (see deploy/remote-volumes)", place, at.Namespace))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.ReasonForError(err) == metav1.StatusReasonNotAcceptable:
		return refuse("NotValid", fmt.Sprintf("%s does not accept the backing claim %s: %s", place, at, detail))
	case errors.As(err, &dial) && dial.Op == "dial", errors.As(err, &certificate), apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err):
		// It was not sent, or certainly not carried out.
		return sorted{retry: err, unsent: true}
	}
	// Conflict, server errors, time-outs, lost connections: nobody knows, or soon
	// it may be otherwise.
	return sorted{retry: err}
}

// lacksRights says whether a request was refused for want of rights, not by
// admission.
func lacksRights(err error, detail string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(detail, "cannot create resource")
}

// errForeign is the error of a backing claim's name that somebody else holds;
// errTerminating that of one that an earlier backing claim of ours still holds.
var (
	errForeign     = errors.New("a claim of that name is there already and is not ours")
	errTerminating = errors.New("an earlier claim of that name is still being deleted")
)

// examine looks at the claim that holds the name of a backing claim.
func (f *Flow) examine(ctx context.Context, client kubernetes.Interface, o decide.Observation, at types.NamespacedName) error {
	have, err := client.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("look at claim %s: %w", at, err)
	case backing.IsOf(have, o.UID, f.Place.HomeID):
		return nil
	case have.Labels[keys.HomeID] == f.Place.HomeID && f.isGoing(have):
		return errTerminating
	}
	return errForeign
}

// isGoing says whether a backing claim of ours for an earlier claim is being
// removed or soon will be. One whose volume is retained stays.
func (f *Flow) isGoing(b *corev1.PersistentVolumeClaim) bool {
	if b.DeletionTimestamp != nil || backing.Unpublished(b) {
		return true
	}
	earlier := f.Sources.virtual(types.UID(b.Labels[keys.ClaimUID]))
	return earlier != nil && earlier.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}
