package remote

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// namespaceObservation is the state of one namespace of a remote cluster.
type namespaceObservation struct {
	name string
	// exists says whether the home namespace exists, open whether it may use the cluster.
	exists, open bool
	// uid is that of the home namespace; empty if it does not exist or is being deleted.
	// told: this process has lately written it into the request.
	uid  types.UID
	told bool
	// used: a virtual volume has its data there, a claim may have a backing claim there, or
	// a pod a copy.
	used bool
	// asking: the cluster creates namespaces on request. leaving: the RemoteCluster is
	// being deleted and takes nothing new.
	asking, leaving bool
	// request is the NamespaceRequest for it, nil if there is none.
	request *remotev1alpha1.NamespaceRequest
	// recorded: the RemoteCluster's status names it.
	recorded bool
	// unneeded is for how long it has not been needed.
	unneeded time.Duration
}

type namespaceVerb int

const (
	// nothing waits until something changes.
	nothing namespaceVerb = iota
	// ask creates the NamespaceRequest.
	ask
	// identify writes the UID of the home namespace into the NamespaceRequest.
	identify
	// retire returns the namespace if nothing is left in it.
	retire
)

// linger is how long a namespace that is no longer needed is kept: a step for a claim that
// has begun may last half a minute.
const linger = 35 * time.Second

// next returns the action, and for nothing also when to decide again; 0 means when
// something changes.
func next(o namespaceObservation) (namespaceVerb, time.Duration) {
	if namespaceNeeded(o) {
		// Rights are needed to delete what is there, even if home no longer may use it.
		if o.asking && o.request == nil && len(validation.IsDNS1123Label(o.name)) == 0 {
			return ask, 0
		}
		if o.request != nil && o.request.DeletionTimestamp == nil && o.uid != "" && o.request.Spec.HomeNamespaceUID != o.uid && !o.told {
			return identify, 0
		}
		if o.used && !o.open {
			// Its use may end without an event for this package.
			return nothing, linger
		}
		return nothing, 0
	}
	requested := o.request != nil && o.request.DeletionTimestamp == nil
	if !requested && (!o.recorded || o.exists) {
		return nothing, 0
	}
	if left := linger - o.unneeded; left > 0 && !o.leaving {
		return nothing, left
	}
	return retire, 0
}

func namespaceNeeded(o namespaceObservation) bool {
	return o.used || (o.open && !o.leaving)
}

// namespaceState is the state of a claim's namespace in a remote cluster.
type namespaceState struct {
	// Asked is true where the cluster creates namespaces on request; Given once this one
	// may be used.
	Asked, Given bool
	// Rights says whether home may at least read and delete what it has there.
	Rights bool
	// Reason and Message say why the cluster refuses the namespace. Without a reason it may
	// still be granted; a message then says what it waits for.
	Reason, Message string
	// Since is when this process began to wait for it.
	Since time.Time
}

// passing are reasons of the remote agent that go away by themselves.
var passing = []string{"Preparing", "Terminating"}

// stateOf returns the state that a request shows. name is the namespace, home the home
// namespace that it belongs to, uid the UID of that; empty if it does not exist.
func stateOf(request *remotev1alpha1.NamespaceRequest, name, home string, uid types.UID) namespaceState {
	state := namespaceState{Asked: true}
	refuse := func(reason, message string) namespaceState {
		state.Reason, state.Message = reason, message
		return state
	}
	if len(name) > validation.DNS1123LabelMaxLength {
		return refuse("NameTooLong", fmt.Sprintf("its name there, %s, would have more than %d characters: use a shorter name at home", name,
			validation.DNS1123LabelMaxLength))
	}
	if request == nil || request.DeletionTimestamp != nil {
		return state
	}
	if request.Spec.HomeNamespace != home {
		return refuse("OtherRequest", fmt.Sprintf("NamespaceRequest %s there was made for another namespace: delete it", name))
	}
	ready := meta.FindStatusCondition(request.Status.Conditions, remotev1alpha1.Ready)
	switch {
	case ready == nil:
	case ready.Status == metav1.ConditionTrue:
		state.Rights = true
		if recorded := request.Status.HomeNamespaceUID; recorded != "" && uid != "" && recorded != uid {
			// The remote agent has not judged the new UID yet.
			state.Message = fmt.Sprintf("namespace %s there is of an earlier namespace of this name, and the remote agent has not answered yet",
				name)
			return state
		}
		state.Given = true
	case ready.Status == metav1.ConditionFalse && slices.Contains(passing, ready.Reason):
		state.Message = sentence.Plain(ready.Message, 256)
	case ready.Status == metav1.ConditionFalse && ready.Reason != "":
		state.Rights = ready.Reason == remotev1alpha1.ReasonAnotherNamespace
		return refuse(sentence.Plain(ready.Reason, 64), sentence.Plain(ready.Message, 256))
	}
	return state
}

// homeOf returns the home namespace that a namespace of a remote cluster belongs to; false
// if it belongs to none.
func homeOf(strategy v1alpha1.NamespaceStrategy, namespace, homeID string) (string, bool) {
	if strategy == v1alpha1.Suffixed {
		home, ok := strings.CutSuffix(namespace, "-"+homeID)
		return home, ok && home != ""
	}
	return namespace, true
}
