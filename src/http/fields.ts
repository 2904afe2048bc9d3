/** Fields of answers in one line each: what they are is said with them, and read in OpenAPI and docs/api.md. */
import Type from 'typebox';

export const text = (description: string) => Type.String({ description });
export const whole = (description: string) => Type.Integer({ description });
export const flag = (description: string) => Type.Boolean({ description });
export const texts = (description: string) => Type.Array(Type.String(), { description });
export const orNull = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
