package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// maxRequest limits a request in bytes: etcd stores no object of more than 1.5 MiB, and an update has two.
const maxRequest = 8 << 20

// cluster is what policies may look at beside the object of a request.
type cluster struct {
	client     kubernetes.Interface
	namespaces corelisters.NamespaceLister
}

// NewHandler returns what answers API servers: each policy under its name. Namespaces are looked up in a cache, and claims, which a
// move has locked, are asked for each time: what it locks counts from the next pod on, in each replica.
func NewHandler(policies []Policy, client kubernetes.Interface, namespaces corelisters.NamespaceLister) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, policy := range policies {
		e, err := newEvaluator(policy)
		if err != nil {
			return nil, err
		}
		mux.Handle("POST "+*policy.Configuration().Webhooks[0].ClientConfig.Service.Path,
			&handler{evaluator: e, cluster: cluster{client: client, namespaces: namespaces}})
	}
	return mux, nil
}

type handler struct {
	*evaluator
	cluster cluster
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err == nil && review.Request == nil {
		err = errors.New("it has no request")
	}
	if err != nil {
		http.Error(w, "this is no AdmissionReview: "+err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = h.answer(r.Context(), review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	content, err := json.Marshal(review)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(content) // the API server is gone
}

// answer says what the policy makes of a request. What goes wrong refuses it only if the policy fails closed.
func (h *handler) answer(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	namespace, params, err := h.cluster.around(ctx, request, h.Params)
	var changes []byte
	if err == nil {
		changes, err = h.mutate(ctx, request, namespace, params)
	}
	response := &admissionv1.AdmissionResponse{Allowed: true}
	if err != nil {
		klog.FromContext(ctx).Error(err, "A policy failed", "policy", h.Name, "failurePolicy", *h.Spec.FailurePolicy,
			"object", klog.KRef(request.Namespace, request.Name))
		if *h.Spec.FailurePolicy == registrationv1.Fail {
			response.Allowed = false
			response.Result = &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
				Message: fmt.Sprintf("policy %s cannot be followed now: try again; if that lasts, see the log of the pods of Deployment %s/%s: %v",
					h.Name, Namespace, Service, err)}
			return response
		}
	}
	if len(changes) > 0 {
		response.Patch, response.PatchType = changes, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return response
}

// around reads the namespace of a request, and the claims there that are parameters, if there are any.
func (c cluster) around(ctx context.Context, request *admissionv1.AdmissionRequest, params *metav1.LabelSelector) (*corev1.Namespace,
	[]runtime.Object, error) {
	namespace, err := c.namespaces.Get(request.Namespace)
	if apierrors.IsNotFound(err) {
		// It may be newer than the cache.
		namespace, err = c.client.CoreV1().Namespaces().Get(ctx, request.Namespace, metav1.GetOptions{})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get namespace %s: %w", request.Namespace, err)
	}
	if params == nil {
		return namespace, nil, nil
	}
	claims, err := c.client.CoreV1().PersistentVolumeClaims(request.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(params)})
	if err != nil {
		return nil, nil, fmt.Errorf("list the claims in namespace %s: %w", request.Namespace, err)
	}
	found := make([]runtime.Object, 0, len(claims.Items))
	for i := range claims.Items {
		claim := &claims.Items[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		found = append(found, claim)
	}
	return namespace, found, nil
}
