// Package webhook does what the MutatingAdmissionPolicies of deploy/ do, for API servers that do not serve that kind of object. Read
// (policy.go) finds them in the manifests, Configuration says when an API server is to call, evaluator.go works out what a policy
// changes, with the API server's own libraries, and Run (server.go) answers API servers.
package webhook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Policy is a MutatingAdmissionPolicy and the selector of its parameters, which are claims of the namespace of the object that is
// changed; nil: it has none.
type Policy struct {
	*admissionv1.MutatingAdmissionPolicy
	Params *metav1.LabelSelector
}

// Read returns all MutatingAdmissionPolicies in files that end in .yaml, by name. One that a webhook cannot do the work of is an error.
func Read(files fs.FS) ([]Policy, error) {
	var policies []*admissionv1.MutatingAdmissionPolicy
	bindings := map[string]*admissionv1.MutatingAdmissionPolicyBinding{}
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			var object metav1.TypeMeta
			if err := yaml.Unmarshal(document, &object); err != nil || object.APIVersion != admissionv1.SchemeGroupVersion.String() {
				continue // patches of kustomize are no objects
			}
			switch object.Kind {
			case "MutatingAdmissionPolicy":
				policy := &admissionv1.MutatingAdmissionPolicy{}
				if err := yaml.UnmarshalStrict(document, policy); err != nil {
					return fmt.Errorf("read a policy in %s: %w", name, err)
				}
				policies = append(policies, policy)
			case "MutatingAdmissionPolicyBinding":
				binding := &admissionv1.MutatingAdmissionPolicyBinding{}
				if err := yaml.UnmarshalStrict(document, binding); err != nil {
					return fmt.Errorf("read a binding in %s: %w", name, err)
				}
				bindings[binding.Spec.PolicyName] = binding
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the policies in the manifests: %w", err)
	}
	var found []Policy
	for _, policy := range policies {
		p, err := pair(policy, bindings[policy.Name])
		if err != nil {
			return nil, fmt.Errorf("policy %s cannot be served as a webhook: %w", policy.Name, err)
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// pair joins a policy with its binding, and fills in the API server's defaults.
func pair(policy *admissionv1.MutatingAdmissionPolicy, binding *admissionv1.MutatingAdmissionPolicyBinding) (p Policy, err error) {
	p.MutatingAdmissionPolicy = policy
	spec := &policy.Spec
	switch {
	case binding == nil:
		return p, errors.New("it has no binding")
	case binding.Spec.MatchResources != nil:
		return p, errors.New("its binding selects resources: let the policy do that")
	case spec.MatchConstraints == nil || len(spec.MatchConstraints.ResourceRules) == 0:
		return p, errors.New("it is for all resources")
	case len(spec.MatchConstraints.ExcludeResourceRules) > 0:
		return p, errors.New("it excludes resources")
	case slices.ContainsFunc(spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
		return len(rule.ResourceNames) > 0
	}):
		return p, errors.New("it is for names of resources")
	}
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = ptr.To(admissionv1.Fail)
	}
	if spec.ParamKind == nil {
		return p, nil
	}
	params := binding.Spec.ParamRef
	claims := admissionv1.ParamKind{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	if *spec.ParamKind != claims || params == nil || params.Selector == nil || params.Namespace != "" ||
		ptr.Deref(params.ParameterNotFoundAction, admissionv1.DenyAction) != admissionv1.AllowAction {
		return p, errors.New("its parameters are other than claims of the object's namespace that a selector selects, and there may be none")
	}
	p.Params = params.Selector
	return p, nil
}

// Service is the Service by which API servers reach the webhook, and Namespace its namespace; the manifests have the same names.
const (
	Service   = "lodestone-webhook"
	Namespace = "lodestone-system"
)

// ownNamespaces are those of the cluster and of Lodestone: where a move's gate never holds a pod back, also not the Job that makes the
// webhook's certificate.
var ownNamespaces = []string{
	metav1.NamespaceSystem, Namespace, "lodestone-storage", "lodestone-certificates", "lodestone-network", "lodestone-remote",
}

// Configuration is when API servers call the webhook in place of a policy. A policy that fails closed is called only for namespaces in
// which a move runs, and never for those without which the cluster or the webhook itself does not start. It is pure.
func (p Policy) Configuration() *admissionv1.MutatingWebhookConfiguration {
	match := p.Spec.MatchConstraints
	namespaces, timeout := match.NamespaceSelector.DeepCopy(), int32(3)
	if namespaces == nil {
		namespaces = &metav1.LabelSelector{}
	}
	if *p.Spec.FailurePolicy == admissionv1.Fail {
		timeout = 10
		namespaces.MatchExpressions = append(namespaces.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: keys.Moving, Operator: metav1.LabelSelectorOpIn, Values: []string{keys.MovingNow}},
			metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn,
				Values: ownNamespaces})
	}
	hook := admissionv1.MutatingWebhook{
		Name: p.Name + ".lodestone.dev",
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
			Namespace: Namespace, Name: Service, Path: ptr.To(path.Join("/", p.Name)), Port: ptr.To(int32(443)),
		}},
		FailurePolicy:           p.Spec.FailurePolicy,
		MatchPolicy:             ptr.To(ptr.Deref(match.MatchPolicy, admissionv1.Equivalent)),
		NamespaceSelector:       namespaces,
		ObjectSelector:          ptr.To(ptr.Deref(match.ObjectSelector, metav1.LabelSelector{})),
		SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds:          &timeout,
		AdmissionReviewVersions: []string{"v1"},
		ReinvocationPolicy:      ptr.To(p.Spec.ReinvocationPolicy),
		MatchConditions:         p.Spec.MatchConditions,
	}
	for _, rule := range match.ResourceRules {
		hook.Rules = append(hook.Rules, rule.RuleWithOperations)
	}
	return &admissionv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Webhooks:   []admissionv1.MutatingWebhook{hook},
	}
}
