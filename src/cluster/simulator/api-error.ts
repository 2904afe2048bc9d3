/** An error of the API server: a Status object whose code is also the HTTP status. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  constructor(
    readonly code: number,
    message: string,
    readonly extra: { reason?: string; details?: object; continue?: string } = {},
  ) {
    super(message);
  }

  get body(): object {
    const { reason = reasons[this.code] ?? 'Unknown', details, continue: token } = this.extra;
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: token === undefined ? {} : { continue: token },
      status: 'Failure',
      message: this.message,
      reason,
      ...(details ? { details } : {}),
      code: this.code,
    };
  }
}

/** The reason that the API server gives with each status. */
const reasons: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  409: 'Conflict',
  410: 'Expired',
  413: 'RequestEntityTooLarge',
  415: 'UnsupportedMediaType',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

export const badRequest = (message: string) => new ApiError(400, message);

export const expired = (version: number, oldest: number) =>
  new ApiError(410, `too old resource version: ${version} (${oldest})`);

export const conflict = (resource: string, name: string, why: string) =>
  new ApiError(409, `Operation cannot be fulfilled on ${resource} "${name}": ${why}`, {
    details: { name, kind: resource },
  });

export const notFound = (resource: string, name: string) =>
  new ApiError(404, `${resource} "${name}" not found`, { details: { name, kind: resource } });

export const invalid = (kind: string, name: string, field: string, why: string) =>
  new ApiError(422, `${kind} "${name}" is invalid: ${field}: ${why}`, {
    details: { name, kind, causes: [{ reason: 'FieldValueInvalid', message: why, field }] },
  });
