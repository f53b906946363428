package policy

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ReasonNotConfined is given where what confines home clusters is not in force, so they get no rights.
const ReasonNotConfined = "NotConfined"

// The policy that confines home clusters, and its binding, have one name. The marker is the service
// account that it confines as well and that nobody works as.
const (
	ConfiningPolicy = "lodestone-home"
	MarkerNamespace = "lodestone-remote"
	Marker          = "lodestone-marker"
)

// Confinement is the policy that confines home clusters, and its binding; nil for what is missing.
type Confinement struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// Check returns why what is in a cluster does not confine home clusters as c does, which the agent
// was built with; nil if it does.
func (c Confinement) Check(have Confinement) *Refusal {
	switch {
	case have.Policy == nil:
		return notConfined("ValidatingAdmissionPolicy " + ConfiningPolicy + " is missing")
	case have.Binding == nil:
		return notConfined("ValidatingAdmissionPolicyBinding " + ConfiningPolicy + " is missing")
	case !equality.Semantic.DeepEqual(complete(c.Policy.Spec), complete(have.Policy.Spec)):
		return notConfined("ValidatingAdmissionPolicy " + ConfiningPolicy + " is another than this version of the agent was built with")
	case !equality.Semantic.DeepEqual(c.Binding.Spec, have.Binding.Spec):
		return notConfined("ValidatingAdmissionPolicyBinding " + ConfiningPolicy + " is another than this version of the agent was built with")
	}
	return nil
}

// complete returns a specification with the API server's defaults.
func complete(spec admissionv1.ValidatingAdmissionPolicySpec) admissionv1.ValidatingAdmissionPolicySpec {
	spec = *spec.DeepCopy()
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = ptr.To(admissionv1.Fail)
	}
	match := spec.MatchConstraints
	if match == nil {
		return spec
	}
	if match.MatchPolicy == nil {
		match.MatchPolicy = ptr.To(admissionv1.Equivalent)
	}
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = &metav1.LabelSelector{}
	}
	if match.ObjectSelector == nil {
		match.ObjectSelector = &metav1.LabelSelector{}
	}
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				rules[i].Scope = ptr.To(admissionv1.AllScopes)
			}
		}
	}
	return spec
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
