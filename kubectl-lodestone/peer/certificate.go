package peer

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// certificate gets a client certificate. The private key is made here and kept
// in home's Secret before it is asked for a certificate of it, so that a run that
// is stopped goes on with the same request. It returns the Secret as it then is.
func (p *peering) certificate(ctx context.Context, plan Plan, secret *corev1.Secret) (credentials.Login, *corev1.Secret, error) {
	fail := func(err error) (credentials.Login, *corev1.Secret, error) { return credentials.Login{}, nil, err }
	var key []byte
	if secret != nil {
		key = secret.Data[credentials.PendingKey]
	}
	if len(key) == 0 {
		made, err := credentials.NewKey()
		if err != nil {
			return fail(err)
		}
		key = made
		if secret, err = p.writeSecret(ctx, plan, secret, func(data map[string][]byte) { data[credentials.PendingKey] = key }); err != nil {
			return fail(err)
		}
	}
	want, err := signingRequest(plan, key, p.Options)
	if err != nil {
		return fail(err)
	}
	requests := p.remote.Client.CertificatesV1().CertificateSigningRequests()
	if _, err = requests.Create(ctx, want, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fail(p.remote.Explain("make CertificateSigningRequest "+want.Name, err))
	}
	if err := p.approve(ctx, want); err != nil {
		return fail(err)
	}
	var certificate []byte
	what := fmt.Sprintf("CertificateSigningRequest %q in the cluster of context %q to be signed", want.Name, p.remote.Context)
	err = p.Await(ctx, what, func(ctx context.Context) (string, bool, error) {
		request, err := requests.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return patient(p.remote.Explain("get CertificateSigningRequest "+want.Name, err))
		}
		if err := p.isOurs(request, want); err != nil {
			return "", false, err
		}
		certificate = request.Status.Certificate
		state, refused := judge(request, p.remote.Context)
		if refused {
			return "", false, p.discard(ctx, plan, secret, state)
		}
		return state, len(certificate) > 0, nil
	})
	if err != nil {
		return fail(err)
	}
	p.Say("got a client certificate of user %q", plan.User())
	return credentials.Login{Certificate: certificate, PEM: key}, secret, nil
}

// signingRequest returns the request for a certificate of a private key.
func signingRequest(plan Plan, key []byte, o Options) (*certificatesv1.CertificateSigningRequest, error) {
	request, suffix, err := credentials.Request(key, plan.User(), keys.HomesGroup)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone-home-" + plan.HomeID + "-" + suffix, Labels: managed()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			ExpirationSeconds: ptr.To(int32(o.Duration.Seconds())),
		},
	}, nil
}

// judge says where a request stands, and whether it will never be signed.
func judge(request *certificatesv1.CertificateSigningRequest, remote string) (state string, refused bool) {
	state = fmt.Sprintf("it waits for approval: kubectl --context %s certificate approve %s", remote, request.Name)
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return fmt.Sprintf("CertificateSigningRequest %q was refused (%s: %s): run the same command again to ask anew, or use --auth token", request.Name, condition.Reason, condition.Message), true
		case certificatesv1.CertificateApproved:
			state = "it is approved but not signed; a cluster that signs no client certificates (EKS is one) never will: use --auth token there"
		}
	}
	return state, false
}

// discard drops the key of a request that was refused and returns the sentence
// as an error.
func (p *peering) discard(ctx context.Context, plan Plan, secret *corev1.Secret, sentence string) error {
	if _, err := p.writeSecret(ctx, plan, secret, func(data map[string][]byte) { delete(data, credentials.PendingKey) }); err != nil {
		return err
	}
	return fmt.Errorf("%s", sentence)
}

// isOurs refuses a request that has the name of the one that is wanted but asks
// for something else: whoever may make requests could have taken the name.
func (p *peering) isOurs(have, want *certificatesv1.CertificateSigningRequest) error {
	differs := difference(have.Spec, want.Spec)
	if differs == "" {
		return nil
	}
	return outcome.Refuse("CertificateSigningRequest %q in the cluster of context %q was not written by peer (%s), so it is not used: nobody must approve it; delete it there (kubectl --context %s delete csr %s), then run the same command again",
		want.Name, p.remote.Context, differs, p.remote.Context, want.Name)
}

// difference says in what two requests ask for different certificates, other than
// for how long; empty if in nothing. It is pure.
func difference(have, want certificatesv1.CertificateSigningRequestSpec) string {
	if have.SignerName != want.SignerName {
		return fmt.Sprintf("it asks another signer, %q", have.SignerName)
	}
	if !sets.New(have.Usages...).Equal(sets.New(want.Usages...)) {
		return fmt.Sprintf("it asks for other usages, %q", have.Usages)
	}
	return credentials.Difference(have.Request, want.Request)
}

// approve approves a request with the user's own rights, or says who must.
func (p *peering) approve(ctx context.Context, want *certificatesv1.CertificateSigningRequest) error {
	name, requests := want.Name, p.remote.Client.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return p.remote.Explain("get CertificateSigningRequest "+name, err)
	}
	if err := p.isOurs(request, want); err != nil {
		return err
	}
	if len(request.Status.Conditions) > 0 {
		return nil // decided already
	}
	lacking, err := p.remote.Lacking(ctx,
		access.Right{Verb: "update", Group: "certificates.k8s.io", Resource: "certificatesigningrequests/approval"},
		access.Right{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: certificatesv1.KubeAPIServerClientSignerName})
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		p.Say("you may not approve certificates in the cluster of context %q; ask somebody who may to run: kubectl certificate approve %s", p.remote.Context, name)
		return nil
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "Peered", Message: "approved by whoever ran kubectl lodestone peer",
	})
	_, err = requests.UpdateApproval(ctx, name, request, metav1.UpdateOptions{})
	return p.remote.Explain("approve CertificateSigningRequest "+name, err)
}
