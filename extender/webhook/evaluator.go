package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// evaluator works out what a policy changes, as an API server does: conditions, then each mutation on what the one before has made.
type evaluator struct {
	Policy
	compiler *cel.CompositedCompiler
	matcher  matchconditions.Matcher
	patchers []patch.Patcher
}

// What all evaluators share: the types of objects. They take megabytes, which this program's other commands do without.
var (
	interfaces = sync.OnceValue(func() admission.ObjectInterfaces { return admission.NewObjectInterfacesFromScheme(scheme.Scheme) })
	converter  = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })
)

// variable is one of a policy's, as the compiler takes it.
type variable registrationv1.Variable

func (v *variable) GetName() string            { return v.Name }
func (v *variable) GetExpression() string      { return v.Expression }
func (v *variable) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType, celgo.DynType} }

// newEvaluator compiles a policy. Whatever does not compile is an error of each evaluation, as on an API server. An expression may not
// ask what users may do: there is nobody to ask.
func newEvaluator(policy Policy) (*evaluator, error) {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, fmt.Errorf("prepare the compiler of policies: %w", err)
	}
	e := &evaluator{Policy: policy, compiler: compiler}
	declared := cel.OptionalVariableDeclarations{HasParams: policy.Params != nil}
	var variables []cel.NamedExpressionAccessor
	for i := range policy.Spec.Variables {
		variables = append(variables, (*variable)(&policy.Spec.Variables[i]))
	}
	compiler.CompileAndStoreVariables(variables, declared, environment.StoredExpressions)
	var conditions []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	e.matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, declared, environment.StoredExpressions),
		policy.Spec.FailurePolicy, "policy", "mutate", policy.Name)
	declared.HasPatchTypes = true
	for _, mutation := range policy.Spec.Mutations {
		switch {
		case mutation.JSONPatch != nil:
			e.patchers = append(e.patchers, patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(
				&patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}, declared, environment.StoredExpressions)))
		case mutation.ApplyConfiguration != nil:
			e.patchers = append(e.patchers, patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(
				&patch.ApplyConfigurationCondition{Expression: mutation.ApplyConfiguration.Expression}, declared, environment.StoredExpressions)))
		}
	}
	return e, nil
}

// mutate returns what the policy makes of the object of a request, as a JSON patch; nil: it stays. params are what there is of
// parameters. What fails is left out, and in the error, which the policy's failure policy is for.
func (e *evaluator) mutate(ctx context.Context, request *admissionv1.AdmissionRequest, namespace *corev1.Namespace,
	params []runtime.Object) ([]byte, error) {
	before, err := decode(request.Object.Raw)
	if err != nil {
		return nil, err
	}
	attributes, err := attributesOf(request, before)
	if err != nil {
		return nil, err
	}
	if e.Params == nil {
		params = []runtime.Object{nil}
	}
	var failures []error
	for _, param := range params {
		ctx := e.compiler.CreateContext(ctx)
		match := e.matcher.Match(ctx, attributes, param, nil)
		if match.Error != nil {
			failures = append(failures, match.Error)
		}
		if match.Error != nil || !match.Matches {
			continue
		}
		for _, patcher := range e.patchers {
			after, err := patcher.Patch(ctx, patch.Request{
				MatchedResource: attributes.GetResource(), VersionedAttributes: attributes, ObjectInterfaces: interfaces(),
				OptionalVariables: cel.OptionalVariableBindings{VersionedParams: param}, Namespace: namespace, TypeConverter: converter(),
			}, celconfig.RuntimeCELCostBudget)
			if err == nil {
				attributes.VersionedObject, err = typed(after, attributes.VersionedKind)
			}
			failures = append(failures, err)
		}
	}
	changes, err := difference(before, attributes.VersionedObject)
	return changes, errors.Join(append(failures, err)...)
}

func decode(raw []byte) (runtime.Object, error) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read the object of a request: %w", err)
	}
	return object, nil
}

// attributesOf is a request as the API server's libraries take it.
func attributesOf(request *admissionv1.AdmissionRequest, object runtime.Object) (*admission.VersionedAttributes, error) {
	var old runtime.Object
	if len(request.OldObject.Raw) > 0 {
		var err error
		if old, err = decode(request.OldObject.Raw); err != nil {
			return nil, err
		}
	}
	kind := schema.GroupVersionKind(request.Kind)
	return &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, kind, request.Namespace, request.Name,
			schema.GroupVersionResource(request.Resource), request.SubResource, admission.Operation(request.Operation), nil,
			request.DryRun != nil && *request.DryRun, userOf(request.UserInfo)),
		VersionedKind: kind, VersionedObject: object, VersionedOldObject: old,
	}, nil
}

func userOf(info authenticationv1.UserInfo) user.Info {
	extra := map[string][]string{}
	for key, values := range info.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra}
}

// typed returns an object of a Go type: an ApplyConfiguration may make one without.
func typed(object runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
	plain, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	made, err := scheme.Scheme.New(kind)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(plain.Object, made)
	}
	if err != nil {
		return nil, fmt.Errorf("read what a policy has made: %w", err)
	}
	made.GetObjectKind().SetGroupVersionKind(kind)
	return made, nil
}

// difference returns the JSON patch that makes one object of another; nil if they are alike.
func difference(before, after runtime.Object) ([]byte, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("write the object of a request: %w", err)
	}
	now, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("write what a policy has made: %w", err)
	}
	operations, err := jsonpatch.CreatePatch(old, now)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	return json.Marshal(operations)
}
