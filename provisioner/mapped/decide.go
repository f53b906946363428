// Package mapped keeps the namespaces of one remote cluster that belong to
// namespaces of the home cluster: it asks for those that are needed where the
// cluster makes them on request, and gives back what nothing needs any more.
// Decisions are pure; the Keeper observes and acts.
package mapped

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// observation is what is known of one namespace of a remote cluster.
type observation struct {
	name string
	// exists says whether its home namespace does, open whether that may use the
	// cluster.
	exists, open bool
	// used: a virtual volume has its data there, a claim may have a backing claim
	// there, or a pod a copy.
	used bool
	// asking: the cluster makes namespaces on request. leaving: it takes nothing
	// new.
	asking, leaving bool
	// request is the request for it, nil if there is none.
	request *remotev1alpha1.NamespaceRequest
	// recorded: the RemoteCluster's status names it.
	recorded bool
	// unneeded is for how long nothing has needed it.
	unneeded time.Duration
}

type verb int

const (
	// nothing is to be done until something changes.
	nothing verb = iota
	// ask makes the request.
	ask
	// retire gives the namespace back if nothing is left in it.
	retire
)

// linger is how long a namespace is kept that nothing needs: a step for a claim
// that was begun before lasts half a minute at most.
const linger = 35 * time.Second

// next returns what to do, and if that is nothing when to look again; 0 means
// when something changes.
func next(o observation) (verb, time.Duration) {
	if needed(o) {
		// Rights are needed to delete what is there, open or not.
		if o.asking && o.request == nil && len(validation.IsDNS1123Label(o.name)) == 0 {
			return ask, 0
		}
		if o.used && !o.open {
			// What it is used for may end without a word to this package.
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

func needed(o observation) bool {
	return o.used || (o.open && !o.leaving)
}

// passing are the reasons of the remote agent that end by themselves.
var passing = []string{"Preparing", "Terminating"}

// State is what a claim needs to know of the namespace that belongs to its own.
type State struct {
	// Asked is true where the cluster makes namespaces on request; Given once
	// this one may be used.
	Asked, Given bool
	// Reason and Message say why the cluster refuses it. Without a reason it may
	// still be given, and the message, if there is one, says what it waits for.
	Reason, Message string
	// Since is when this program began to wait for it.
	Since time.Time
}

// stateOf returns what a request says. name is the namespace, home the home
// namespace that it belongs to.
func stateOf(request *remotev1alpha1.NamespaceRequest, name, home string) State {
	state := State{Asked: true}
	refuse := func(reason, message string) State {
		state.Reason, state.Message = reason, message
		return state
	}
	if len(name) > validation.DNS1123LabelMaxLength {
		return refuse("NameTooLong", fmt.Sprintf("its name there, %s, would have more than %d characters: use a shorter name at home", name, validation.DNS1123LabelMaxLength))
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
		state.Given = true
	case ready.Status == metav1.ConditionFalse && slices.Contains(passing, ready.Reason):
		state.Message = plain(ready.Message, 256)
	case ready.Status == metav1.ConditionFalse && ready.Reason != "":
		return refuse(plain(ready.Reason, 64), plain(ready.Message, 256))
	}
	return state
}

// plain is a text of another cluster as users may be shown it.
func plain(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// homeOf returns the home namespace that a namespace of a remote cluster belongs
// to; false if it belongs to none.
func homeOf(strategy v1alpha1.NamespaceStrategy, namespace, homeID string) (string, bool) {
	if strategy == v1alpha1.Suffixed {
		home, ok := strings.CutSuffix(namespace, "-"+homeID)
		return home, ok && home != ""
	}
	return namespace, true
}
