package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// notHealed is the reason why a shadow is not made anew, where there is no better.
const notHealed = "NotHealed"

// Mending is what decides whether a shadow may be made anew. What does not exist
// is nil.
type Mending struct {
	Home      *remotev1alpha1.HomeCluster
	Request   *remotev1alpha1.NamespaceRequest
	Namespace *corev1.Namespace
	// Count is how many namespaces the home cluster has.
	Count int
	// Stuck is the name of a claim that keeps the namespace from going, if that is
	// being deleted.
	Stuck string
	// Gone says that no claim holds the volume any more.
	Gone bool
}

// Mend says why a shadow is not to be made anew, nil if it is.
func Mend(m Mending) *Refusal {
	home, request, namespace := m.Home, m.Request, m.Namespace
	instead := "take its finalizer " + keys.BackingFinalizer + " off if its data is not needed."
	if m.Gone {
		instead = "to leave it so, take label " + keys.Healing + " and annotation " + keys.HealingRecord +
			" off its volume, and give that the reclaim policy that it is to have: with Delete it is deleted at once with its data."
	}
	switch {
	case home == nil || home.DeletionTimestamp != nil:
		return &Refusal{notHealed, "The claim is not made anew, since its home cluster is served no longer: " + instead}
	case request == nil || request.DeletionTimestamp != nil:
		return &Refusal{notHealed, "The claim is not made anew, since its home cluster asks for the namespace no longer: " + instead}
	case namespace == nil:
		return Grant(home, request, nil, m.Count)
	case namespace.DeletionTimestamp == nil:
		return take(home, request, namespace)
	case !Made(namespace, home) || namespace.Annotations[keys.MadeFor] != MadeFor(home, request):
		return &Refusal{notHealed, "The claim is not made anew, since its namespace was not made for home cluster " + home.Name + "."}
	case m.Stuck != "":
		return &Refusal{notHealed, fmt.Sprintf("The claim is not made anew yet, since its namespace is being deleted and claim %s, which has no volume or is not in use yet, keeps it: delete that claim at home, or take its finalizer %s off.", m.Stuck, keys.BackingFinalizer)}
	}
	if refusal := Grant(home, request, nil, m.Count-1); refusal != nil {
		return &Refusal{notHealed, "The claim is not made anew, since its namespace would not be given again: " + refusal.Message}
	}
	return nil
}
