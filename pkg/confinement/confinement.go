// Package confinement compares the policy that confines home clusters in a remote cluster, and its
// binding, with those of a version (Confinement.Differs). It is pure.
package confinement

import (
	"bytes"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
)

// Name is that of the policy and of its binding.
const Name = "lodestone-home"

// Confinement is the policy that confines home clusters, and its binding; nil for what is missing.
type Confinement struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// Decode reads a manifest: the policy and then its binding.
func Decode(manifest []byte) (Confinement, error) {
	c := Confinement{Policy: &admissionv1.ValidatingAdmissionPolicy{}, Binding: &admissionv1.ValidatingAdmissionPolicyBinding{}}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for _, into := range []any{c.Policy, c.Binding} {
		if err := decoder.Decode(into); err != nil {
			return Confinement{}, fmt.Errorf("read the policy that this program was built with: %w", err)
		}
	}
	return c, nil
}

// Differs says in half a sentence how what is in a cluster differs from c, which whose was built with;
// empty if it does not.
func (c Confinement) Differs(have Confinement, whose string) string {
	switch {
	case have.Policy == nil:
		return "ValidatingAdmissionPolicy " + Name + " is missing"
	case have.Binding == nil:
		return "ValidatingAdmissionPolicyBinding " + Name + " is missing"
	case !equality.Semantic.DeepEqual(complete(c.Policy.Spec), complete(have.Policy.Spec)):
		return "ValidatingAdmissionPolicy " + Name + " is another than this version of " + whose + " was built with"
	case !equality.Semantic.DeepEqual(c.Binding.Spec, have.Binding.Spec):
		return "ValidatingAdmissionPolicyBinding " + Name + " is another than this version of " + whose + " was built with"
	}
	return ""
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
