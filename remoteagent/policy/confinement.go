package policy

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lodestone-storage/lodestone/pkg/confinement"
)

// ReasonNotConfined is given where what confines home clusters is not in force, so they get no rights.
const ReasonNotConfined = "NotConfined"

// The policy that confines home clusters, and its binding, have one name. The marker is the service
// account that it confines as well and that nobody works as.
const (
	ConfiningPolicy = confinement.Name
	MarkerNamespace = "lodestone-remote"
	Marker          = "lodestone-marker"
)

// Check returns why what is in a cluster does not confine home clusters as want does, which the agent
// was built with; nil if it does.
func Check(want, have confinement.Confinement) *Refusal {
	if why := want.Differs(have, "the agent"); why != "" {
		return notConfined(why)
	}
	return nil
}

// refusedByPolicy is what an API server says when the policy refuses a request.
const refusedByPolicy = "ValidatingAdmissionPolicy '" + ConfiningPolicy + "' with binding '" + ConfiningPolicy + "' denied request"

// Tried returns why the answer to a dry run by the marker, which has the right to what it asks,
// does not prove that the policy is in force; nil if the policy refused it.
func Tried(answer error) *Refusal {
	switch {
	case answer == nil:
		return notConfined("the API server does not enforce ValidatingAdmissionPolicy " + ConfiningPolicy +
			", for it lets pass what that forbids; see that its admission plugin ValidatingAdmissionPolicy is on")
	case !apierrors.IsForbidden(answer):
		return notConfined("whether ValidatingAdmissionPolicy " + ConfiningPolicy + " is in force cannot be tried: " + answer.Error())
	case !strings.Contains(answer.Error(), refusedByPolicy):
		return notConfined("service account " + Marker + " in namespace " + MarkerNamespace + ", with which the policy is tried, " +
			"was refused by something else: " + answer.Error())
	}
	return nil
}

// Unreadable returns why home clusters get no rights while the policy cannot be read.
func Unreadable(answer error) *Refusal {
	return notConfined("what confines home clusters cannot be read: " + answer.Error())
}

func notConfined(what string) *Refusal {
	return &Refusal{ReasonNotConfined, "Home clusters get no new rights here: " + what +
		". Apply deploy/remote of the version that the agent has."}
}
