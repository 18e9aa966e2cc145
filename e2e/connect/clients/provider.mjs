// What an application gives both generations of the TypeScript SDK to sign in with: it keeps what the SDK hands it, in
// memory, and is told where to send the person.
import { randomUUID } from 'node:crypto';

export class Provider {
  constructor({ redirectUrl, name, clientMetadataUrl }) {
    this.redirectUrl = redirectUrl;
    this.name = name;
    this.clientMetadataUrl = clientMetadataUrl;
    this.asked = []; // authorization requests
  }

  get clientMetadata() {
    return {
      client_name: this.name,
      redirect_uris: [this.redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    };
  }

  state() {
    return randomUUID();
  }

  clientInformation() {
    return this.information;
  }

  saveClientInformation(information) {
    this.information = information;
  }

  tokens() {
    return this.kept;
  }

  saveTokens(tokens) {
    this.kept = tokens;
  }

  codeVerifier() {
    return this.verifier;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  discoveryState() {
    return this.discovery;
  }

  saveDiscoveryState(state) {
    this.discovery = state;
  }

  redirectToAuthorization(url) {
    this.asked.push(new URL(url));
  }

  invalidateCredentials(what) {
    if (what === 'all' || what === 'tokens') this.kept = undefined;
    if (what === 'all' || what === 'client') this.information = undefined;
    if (what === 'all' || what === 'verifier') this.verifier = undefined;
    if (what === 'all' || what === 'discovery') this.discovery = undefined;
  }
}
